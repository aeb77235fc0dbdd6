// Package kv is state in JetStream buckets: typed values under revision checks, watches that survive reconnects, and
// an index over one bucket that is kept by one watch and answers lists, counts and live subscriptions from memory.
// It knows keys, values and revisions, and nothing about what a value means.
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
// Index. An [Index] is one watch per bucket and process, however many clients read.
//   - Run blocks until its context ends and is the only writer. It reconnects with back-off, resumes after the last
//     revision, and builds everything anew, beside what is being served, when it cannot resume safely.
//   - Before Ready is closed the index is empty. From then on it is never incomplete.
//   - Every page carries a revision: all writes up to it are in the page. Wait blocks until a revision is reached, so
//     that a client can read what it wrote.
//   - A key goes when its delete marker comes. What is purged from the stream without one is noticed when the index is
//     built anew.
//   - A value that cannot be described is kept as an item with a Problem and is counted.
//   - Readers never block the watch for longer than one bounded piece of a scan.
//
// Subscriptions. A [Subscription] gives the changes after its Revision, from the index's one watch to many clients.
// A slow reader never slows the watch: several changes of one key become the newest one, and when more keys wait than
// the buffer holds, the channel is closed and Lost says why. The reader then subscribes and lists again. [Batches] gives
// all that waits at once, and the revision up to which that is everything: for a reader that keeps a copy of its own.
package kv
