// Package relays tortures the relay of the outbox under twelve writers, and checks that each row arrived once, in order.
package relays
