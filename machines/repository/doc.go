// Package repository is the lifecycle of what tasks work on: a repository to clone and analyse, or a name that tasks are grouped under.
//
// The contract:
//   - Its state is derived from its tasks and from whether a clone is asked for, by [Data.Derive], and changed by nothing else: a report of counts that leads to another state, or a command
//     that asks for a clone, is the only way there. Reports may be lost, late and doubled; the next one repairs what an earlier one has left.
//   - Only the failure of a required task is an error, unless it is strict; other failures are counted as warnings.
//   - What it asks for (its clone, a task for each analysis) is reconciled: Applied is the generation for which whoever schedules has done that.
//   - deleting ends when no task is left.
//
// machine.go is the table, derive.go the rules, data.go what is stored and sent.
package repository
