// Package relay brings the rows of an outbox into a stream: each exactly once, those of an aggregate in order.
//
// The way of a row, by file:
//
//  1. run.go: Run makes attempts: it asks the stream (sink/stream.go) and the database (settings.go) who they are, then starts the
//     loop of the mode. maintain.go works beside it; control/control.go has what is asked of a relay, and what it says of itself.
//  2. shard/set.go: Tend takes the leases of as many shards as it should have (shard/lease.go, shard/share.go).
//  3. log/open.go or claim/open.go opens a shard: session/session.go writes the marker that ends earlier sessions, session/readback.go
//     finds what these stored and did not account for, session/generation.go and session/regress.go notice an older state.
//  4. Mode log: log/loop.go takes turns, and log/read.go reads rows behind the fence (log/rows.go).
//     Mode claim: claim/lanes.go runs lanes, and claim/lane.go claims rows, in one transaction with the marks of the last turn.
//  5. Mode log: log/deliver/deliver.go publishes what was read and parks what cannot be; log/deliver/retry.go tries that again.
//     Mode claim: claim/lane.go publishes what was claimed.
//  6. sink/batch.go makes batches, sink/message.go a CloudEvent of each row, and sink/publish.go stores a batch (sink/fast.go).
//  7. A marker that is due (session/session.go) says how far the shard is: it goes with a batch of log/deliver/deliver.go, or alone from
//     log/loop.go and claim/lanes.go.
//
// The contract:
//   - A row is stored once, whatever is killed, stopped or cut off, and however late what was on its way arrives. The
//     stream itself says how far a shard is and who may write: a marker per shard, which every message of a relay (of an atomic batch, the first)
//     expects to be the last one. Whoever opens a shard writes the next marker and so ends all earlier sessions; then it reads back
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
