package mutants

// tasks are guards of the orchestrator of tasks, and of the table of a task.
var tasks = []Mutant{
	{Name: "slot-limit", By: "Q1", Aim: "tasks", Out: "that a task is granted only while all that limits it allows one more", Patches: patch("consumers/orchestrator/schedule/schedule.go",
		"\t\tif !s.free(e, now) {\n",
		"\t\tif !s.free(e, now) && e.Paused {\n")},
	{Name: "slot-revision", Test: "./consumers/orchestrator TestADeposedHolderOfTheLedgerIsRefused", Why: "who was deposed grants what its successor grants, unless what waits has changed in the second between them", Out: "the revision of the ledger", Patches: patch("consumers/orchestrator/ledger.go",
		"kv.WriteAt(l.bucket, ledgerKey, append([]byte(nil), b...), l.revision)",
		"kv.Write(l.bucket, ledgerKey, append([]byte(nil), b...))")},
	{Name: "canceled-without-end", By: "Q2", Aim: "tasks", Out: "that a cancel ends the attempt which runs", Patches: patch("machines/task/actions.go",
		"\tif s.State() == Running {\n\t\td = end(s, OutcomeCanceled",
		"\tif false {\n\t\td = end(s, OutcomeCanceled")},
	{Name: "deleted-counts", By: "I10", Aim: "tasks", Out: "that a task which is not there any more does not count", Patches: patch("consumers/orchestrator/tasks.go",
		"changed = l.tally.Remove(repo, id)",
		"changed = gone")},
}
