// Package tasks kills workers, nodes, who schedules, and NATS under tasks, and holds the log of events against what docs/tasks.md guarantees.
package tasks
