// Package engine runs the machines' transitions: [Engine] has one loop per partition of the commands that its [cluster.Node] has, which takes them in order through the commit protocol. By file:
//
//  1. partition.go: serve opens the partition's consumer at its ack floor; next returns what has arrived, as a batch.
//  2. item.go: newItem reads subject and headers of each command.
//  3. entity.go, load.go: load takes its entity from memory, or reads it from the bucket's leader and compares it with its streams (reconcile.go); speculate.go spares that for one that is created; answers.go looks up what its key was answered.
//  4. decide.go: handle answers what was taken before, refuses, or steps the machine with the command's stream time as the clock.
//  5. commit.go: write stores each touched entity once, at its revision: state, mark, outcomes and the outbox. This is the only commit point. Writes of different entities are sent together and awaited together.
//     What ended long ago is replaced by what remains of it (drop.go, package ended).
//  6. answers.go: reply answers the waiter.
//  7. publish.go, timers.go: publish sends the outboxes: events in a chain that admits neither gap nor repetition, and beside them effects (the first ones of an entity after its events), timers, kept answers and dead letters.
//  8. ack.go: ack ends the commands, in order; where each ack would cost an fsync, package bulkack purges many at once.
//
// Steps 7 and 8 of a batch run beside steps 1 to 6 of the next one, which waits for them before it touches the same entities or publishes: no outbox is replaced before it is out.
//
// After a crash at any point unacked commands come again: those above the mark had not happened, those at or below it have their outbox completed and get the original answer.
// Whatever cannot be written, or is not known to be written, stops the partition; it drops its cache, resets its consumer to the ack floor and starts again with back-off, and nothing is decided from the text of an error. A command that ends the process each time is found by suspects.go.
package engine
