// Package relay brings the rows of an outbox into a stream: each exactly once, in order per aggregate.
package relay
