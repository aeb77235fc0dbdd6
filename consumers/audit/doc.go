// Package audit records what happens to the entities of some machines: one record for each of their events (streams/audit), in a chain for each class.
//
// The contract:
//   - Each event has one record, also when the process ends between an append and the acknowledgement of its event: the last record of an entity says up to which of its
//     events there are some. Only refusals, which change nothing and have no number, may be recorded twice where a restore gives events other sequences.
//   - A record is appended behind the one that it names as its predecessor, or not at all: of two that write at once, one is refused, and begins again behind the other.
package audit
