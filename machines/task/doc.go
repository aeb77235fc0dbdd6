// Package task is the lifecycle of one piece of work of a repository: pending, queued, running, and how it ended. Its key is <namespace>.<repository>.<task>.
//
// The contract:
//   - A task runs only between started and its end, and started is accepted only of a queued task, for the enqueuing (Enqueue) and the start (Starts) that wait:
//     whoever schedules it (consumers/orchestrator) has written its slot first, and a start that is late starts nothing.
//   - Each attempt ends once. It is named by the attempt id of the effect run; a result under another id is refused (stale-attempt), and one that is
//     told as discarded is noted with its attempt.
//   - A failed attempt that may be retried queues the task again, with NotBefore in the future, while attempts remain. failed is final: exhausted, or of no use to try again.
//   - canceled is decided here, at once. It never turns into a retry. The worker learns of it from the stored state of the task.
//   - run of a queued or running task changes nothing: its job is the one that waits or runs.
//   - reset, force-reset and delete have the documents of all enqueuings so far erased; what a later one writes is kept apart by its number.
//   - cron queues the task at its times; a time at which it is queued or running already is skipped, and told.
//
// machine.go is the table, data.go what is stored and sent, actions.go and guards.go hold what the rows name, cron.go the schedule, payload.go what a worker gets and answers.
package task
