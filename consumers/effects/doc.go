// Package effects performs what the machines ask for: one durable consumer per kind of effect (workers.go). Every task ends with a
// command, and is acked when that is stored; so it may be performed twice, providers are idempotent, and results carry the attempt that they
// answer.
//
// A task that comes for a later state of an entity ends the one before it (supersede.go). A task whose provider ends the process
// each time is found by package poison, and given up (suspects.go).
package effects
