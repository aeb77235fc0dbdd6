// Package limits holds the log of events against what is promised of tasks: no limit is exceeded, and each attempt ends once. It knows nothing of the orchestrator: what runs, and what limits it, is what events say.
//
// Events of different entities are published in any order. So each has the place of the command that made it in the order in which commands were stored, which the mark of its value tells. What holds a slot does so
// from before its start is stored until after its end is.
package limits
