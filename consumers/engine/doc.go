// Package engine runs the machines' transitions: [Engine] has one loop per partition of the commands, which takes them in order
// through the commit protocol.
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
// The engine runs the partitions that its [cluster.Node] has: several nodes share them.
package engine
