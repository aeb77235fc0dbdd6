// Package schedule decides which queued task starts next. It is pure: time comes in, grants come out, and it knows neither machines nor streams.
//
// The contract:
//   - A task is granted when its time has come, all tasks that it runs after have succeeded, nobody holds its unique key, its repository and every entry of its namespace, type,
//     pool and of the cluster are below their limits, within their rates and not paused. No order of calls makes [Scheduler.Next] exceed a limit.
//   - Repositories take turns by weight: of those that could start something all the time, each gets a share of the starts proportional to its weight. One that had nothing to
//     start, or was at its limit, gains no claim by that.
//   - In a repository the task goes first that was queued first, where each priority counts as one aging interval: one of priority 9 is overtaken by those of priority 1 that
//     are queued within eight intervals after it, and by no later one. What is queued within one second goes by its order.
//   - A task that is held is counted until it is released, whatever becomes of limits.
//
// A Scheduler is for one goroutine.
package schedule
