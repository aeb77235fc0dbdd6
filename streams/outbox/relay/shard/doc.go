// Package shard is about which shards a relay has: set.go keeps as many as its share, each with a session, lease.go holds them by keys in
// NATS, and share.go says how many each of the relays of a source should have.
package shard
