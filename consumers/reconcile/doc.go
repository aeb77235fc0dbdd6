// Package reconcile holds the value of an entity against the streams of its messages. They are stored apart: a crash leaves messages
// missing that the value's outbox has; a power loss without fsync, a restored backup or a purge by hand may take the end of any of them, in
// any combination.
//
//   - [Reader] reads what the streams say of one entity: its last event (evidence.go), its schedules and tasks (pending.go).
//   - [Unpublished] are the events of an outbox that the stream lacks.
//   - [History] is where the stream of commands stood when this process was new to it, by which may be told what it has lost.
//   - [Passes] looks at all entities, slowly: a deadline that a stream has lost would never come.
//
// It writes nothing: the engine publishes again what is missing, and tells what cannot be had again.
package reconcile
