// Package publish is the way into the streams: messages, chains of them, commands and dead letters.
//
// The contract:
//   - [Appender] writes messages and calls back exactly once for each, when it is stored, refused, or not known to be
//     either. Where the stream fsyncs each write it commits in groups: one atomic batch, one fsync.
//   - [Commands] is the way in for every command, whoever sends it. A command is accepted when its Send returns
//     without an error: from then on it survives what the profile of the server says.
//   - [DeadLetters] keeps what no code could handle, and puts it back where it came from.
//   - An error says what became of a write: [ErrConflict] and [RefusedError] that it was not stored, [ErrUnanswered] that
//     nobody knows; [Permanent] that it will be refused again.
//
// How a message passes: [Appender.Go] hands it to the group of its stream (group.go), which asks the pace (pace.go) whether those that wait
// become an atomic batch or go one by one; publish sends it with a reply of its own, and the answer (ack.go) finds its callback by that.
// A command takes the same way, and is sent again (resend.go) while the stream changes its leader.
package publish
