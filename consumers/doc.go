// Package consumers is what acts: durable consumers that run the machines' transitions, perform their effects, look at
// the world, and build the read models.
//
// [Engine] runs the commit protocol, one loop per partition:
//
//  1. take the partition's next commands in stream order;
//  2. load each entity, skip what it took before (its mark, its last ids), step the machine with the command's stream
//     time as the clock;
//  3. write each touched entity once, at its revision: state, mark, outcomes and the outbox. This is the only commit
//     point. Writes of different entities are sent together and awaited together;
//  4. answer the waiters;
//  5. publish the outboxes: events in a chain that admits neither gap nor repetition, effects, timers;
//  6. ack the commands, in order; where each ack would cost an fsync, purge many at once.
//
// Steps 5 and 6 of a batch go on beside steps 1 to 4 of the next one, which waits for them before it touches an entity
// of that batch and before it publishes anything: no outbox is replaced before it is known to be published.
//
// After a crash at any point unacked commands come again: those above the mark had not happened, those at or below it
// have their outbox completed and are answered as then. Whatever cannot be written, or is not known to be written,
// stops the partition; it drops its cache, resets its consumer to the ack floor and starts again with back-off. It
// never skips and goes on, and nothing is decided from the text of an error.
//
// The engine runs the partitions that its [Node] has: several nodes share them, each with a claim that it takes and gives
// back by itself. [Workers] perform effects: they may perform one twice, so providers are idempotent and results carry
// the attempt that they answer. [Observer] looks at what has a poll. [Views] fold events into read models, each view on
// its own, so that no view waits for another. What is not divided by partitions is a role, and [Owner] holds its lease.
//
// Run of each blocks until its context ends and all its goroutines have gone.
package consumers
