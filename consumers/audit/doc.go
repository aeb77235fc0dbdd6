// Package audit records what happens to the entities of some machines: one record for each of their events (streams/audit), in a chain for each class.
//
// The contract:
//   - Each event has one record, also when the process ends between an append and the acknowledgement of its event: the last record of an entity says up to which of its
//     events there are some (header Instar-Event).
//   - A record is stored in the place that it names, behind its predecessor, or not at all: of two that write at once, one is refused, and begins again behind the other.
//
// What does not hold:
//   - Refusals change nothing and have no number. Where a restore gives events other sequences, all but the last one of an entity can be recorded twice; where both their times
//     and their sequences fall behind those of a record, they have none.
//   - Records are as old as the clock of who writes them says, and none is older than the one before it: where a clock was ahead, later records have its time until it is reached.
package audit
