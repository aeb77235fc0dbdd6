// Package tasks kills workers, nodes and NATS under tasks, and holds the log of events against what docs/tasks.md guarantees.
package tasks
