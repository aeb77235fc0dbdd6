// Package outbox is the transactional outbox: an application writes its events into its own Postgres in the transaction
// that changes its data, and a relay brings each of them into a stream exactly once, in order per aggregate.
package outbox
