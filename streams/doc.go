// Package streams is the ground that everything stands on: the subjects, the streams, the headers and the connection.
// It knows keys and messages, and nothing about what a machine means. What writes is in package publish, the server that a
// process has of its own in package embedded.
//
// The contract:
//   - Subjects are built and parsed here and nowhere else ([Names]). No name reaches a subject unchecked: namespaces,
//     parents and ids are DNS labels ([CheckLabel]), because a `*` or a dot would reach others' data.
//   - [Ensure] creates the streams and buckets that are missing and reports where an existing one differs. It never changes an existing one.
//   - [Connect] never stores later what it has refused: nothing is buffered while the connection is lost.
//   - [Last], [Info] and their like ask the leader of a stream, and ask again until one answers. What a leader has and cannot
//     read is [ErrUnreadable], and never absent.
package streams
