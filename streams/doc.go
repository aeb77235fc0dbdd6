// Package streams is the ground that everything stands on: the subjects, the streams, the headers, the embedded
// server and the appender. It knows keys and messages, and nothing about what a machine means.
//
// The contract:
//   - Subjects are built and parsed here and nowhere else ([Names]). No name reaches a subject unchecked: namespaces,
//     parents and ids are DNS labels ([CheckLabel]), because a `*` or a dot would reach others' data.
//   - [Ensure] creates the streams and buckets that are missing and reports where an existing one differs. It never
//     changes an existing one.
//   - [Appender] writes messages and calls back exactly once for each, when it is stored, refused, or not known to be
//     either. Under the profile fsync it commits in groups: one atomic batch, one fsync.
//   - [Commands] is the way in for every command, whoever sends it. A command is accepted when its Send returns
//     without an error: from then on it survives what the profile says.
//   - [Server] is the embedded NATS server: locked to its directory, restarted in place when its disk has failed.
package streams
