// Package relay brings the rows of an outbox into a stream: each exactly once, those of an aggregate in order.
//
// The contract:
//   - A row is stored once, whatever is killed, stopped or cut off, and however late what was on its way arrives. The
//     stream itself says how far a shard is and who may write: a marker per shard, which every message of a relay expects
//     to be the last one. Whoever opens a shard writes the next marker and so ends all earlier sessions; then it reads back
//     what those stored beyond their position. docs/adr/0009-outbox-fence.md has the argument.
//   - Rows of an aggregate are stored in the order of their numbers. A row that can never be published keeps its aggregate back, not the others: it is tried again after a back-off, and after the last
//     try it waits for an operator. A row that is not to be published before a time is overtaken.
//   - Log reads behind a fence: a number of the sequence is passed only when every transaction that might have taken a lower
//     one has ended. Only writers of that table are waited for.
//   - Claim has one active relay. The store's functions may be used beside it to look, not to claim.
//   - Relays of one source share the shards of mode log by leases: one that comes has its share within seconds, without a
//     row twice or out of order. One outbox may be relayed under a name, and under one name; others are refused.
//   - A stream that was set back to an older state is refused before any event is written, unless the log can publish again
//     what it has lost.
//   - Faults of Postgres and NATS are waited out. Run returns a [PermanentError] when trying again cannot help, such as a
//     position of another database, with what to do.
//   - Run starts goroutines and waits for them. What was begun is finished when its context ends, within seconds.
//
// The relay must be the only publisher under its prefix.
package relay
