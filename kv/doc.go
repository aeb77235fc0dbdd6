// Package kv is state in JetStream buckets: typed values under revision checks, watches that survive reconnects, and leases.
// It knows keys, values and revisions, and nothing about what a value means. Package index, in a folder of it, keeps one
// bucket in memory, and answers lists, counts and live subscriptions.
//
// Buckets. A [Bucket] is opened over a stream KV_<name> that exists; nothing here creates or changes a stream.
//   - Put succeeds only at the revision that the caller has seen; revision 0 means that the key never held anything, so
//     a deleted key is not brought back to life. A lost race is [ErrConflict], whichever of the server's codes said so.
//     Any other error leaves open whether the value was stored: read again and compare.
//   - Get reads from the leader of the stream, so it sees every write that was acknowledged before it.
//   - Watch gives every key's newest value in the order of revisions. It may skip values that were replaced meanwhile,
//     never the newest one. It reconnects by itself and ends with [ErrReset] when the stream is no longer the one that
//     it was following, or has lost messages that were given, however many were written since.
//   - A value that cannot be decoded is a [CorruptError] with its revision and its bytes; the next key is not affected.
//
// Leases. A [Lease] is a key that one holder has for as long as it renews it, by the clocks since boot of those who want it.
package kv
