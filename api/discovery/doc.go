// Package discovery answers "where is service X?" from memory: a catalog that follows the bucket of the instances.
//
// What is answered.
//   - An instance is found when its stage lets it have traffic and its weight is above zero. The weight is the one of
//     the moment of the question: a ramp has grown since the last one, and a maintenance may be over.
//   - Those that end are found only when they are asked for.
//   - Every answer says up to which revision of the bucket all changes are in it (Index), and at which revision its
//     service last changed (Changed). Wait blocks until a revision is in all answers.
//   - A value that this program cannot read changes nothing: what was known of the instance before stays.
//   - While the watch of the bucket is broken, or the node is cut off from the others, what was known last is answered,
//     and Stale says since when; every door passes that on.
//
// Watching. A watcher is woken by changes of its own service only. It is told that there is something new, never what:
// it asks again, so a slow one misses nothing and holds up nobody.
//
// Cost. A question to a service that has not changed since the last one takes no lock and copies the endpoints that it
// answers with; the JSON of a whole answer is written once per change. A change costs nothing until somebody asks.
//
// The past. [History] builds an answer as it would have been at a time or after an event, from the stream of events.
package discovery
