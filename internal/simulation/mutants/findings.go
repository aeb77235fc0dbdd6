package mutants

// findings are guards that were missing once: what came of it was found by reading, or under load and faults. docs/testing.md lists them.
var findings = []Mutant{
	{Name: "batch-of-none", By: "panic", Out: "that each commit takes one command at least", Patches: patch("consumers/engine/commit.go",
		"if n > 0 && (s.size > MaxOutbox",
		"if n >= 0 && (s.size > MaxOutbox")},
	{
		Name: "account-limit", Test: "./streams/publish TestOutOfRoom", Why: "the simulated server has no accounts",
		Out: "that a write may be repeated which a limit of the account refuses", Patches: patch("streams/publish/ack.go",
			"\t10054: true, // message size",
			"\t10002: true,\n\t10054: true, // message size"),
	},
	{
		Name: "mark-without-time", Test: "./consumers/engine TestBareCommandsWhereSequencesComeAgain", Why: "what a loss of power does to commands that nobody was told of is not judged",
		Out: "that a mark is of one history of the stream", Patches: patch("consumers/engine/entity.go",
			"return it.seq <= s.entity.Mark && (s.entity.MarkedAt.IsZero() || !it.time.After(s.entity.MarkedAt))",
			"return it.seq <= s.entity.Mark"),
	},
	{
		Name: "foreign-id", Test: "./consumers/engine TestAForeignIDKeepsNothingOut", Why: "simulated clients use no ids of other entities",
		Out: "that an id belongs to its entity", Patches: patch("consumers/engine/item.go",
			"case !scoped || id == \"\" ||",
			"case !scoped && false || id == \"\" ||"),
	},
	{
		Name: "killer", Test: "./consumers/engine TestACommandThatKillsTheProcessIsGivenUp", Why: "a simulated process is ended by faults, and by no command",
		Out: "that a command which ends each process is given up", Patches: patch("consumers/engine/suspects.go",
			"if p.begun.Starts > poison.GivenUp {",
			"if p.begun.Starts < 0 {"),
	},
	{
		Name: "unreadable-task", Test: "./consumers/effects TestTasksOfUnreadableEntitiesDoNotStarveTheirKind", Why: "simulated disks lose, and damage nothing",
		Out: "that the task of an entity that cannot be read makes room for others", Patches: patch("consumers/effects/workers.go",
			"\tif unreadable(err) { // somebody",
			"\tif false && unreadable(err) { // somebody"),
	},
	{
		Name: "older-event", Test: "./consumers/reconcile TestUnpublished", Why: "what a loss of power has cost is judged by what is told of it",
		Out: "that events below the last one are not stored after it", Patches: patch("consumers/reconcile/evidence.go",
			"stored := last.Version > events[i].Version && !events[i].At.After(last.At) || ",
			"stored := "),
	},
	{Name: "clock-of-node", By: "P1", Out: "that events expire by the clock that stamps them", Patches: patch("consumers/engine/reconcile.go",
		"outbox, lastOfLife, &s.entity, p.found.Now())",
		"outbox, lastOfLife, &s.entity, time.Now())")},
	{Name: "clock-set-back", Test: "./consumers/reconcile TestUnpublished", Why: "the clock has to go back between a refusal and a command that changes nothing, and the process to end with the next refusal", Out: "that a time shows a refusal to be later only where its event came after the value", Patches: patch("consumers/reconcile/evidence.go",
		"at.After(e.MarkedAt) && last.Seq > e.LastEvent) {",
		"at.After(e.MarkedAt)) {")},
	{Name: "value-older", Test: "./consumers/engine TestAnOlderValueIsTold", Why: "a loss that takes a value and leaves its event, of which nobody was told, is drawn too seldom", Out: "that a value below its events is noticed", Patches: patch("consumers/engine/reconcile.go",
		"\tcase last.Highest() > version:\n",
		"\tcase false && last.Highest() > version:\n")},
	{Name: "end-of-events", By: "L1", Out: "that events are missed which the end of their stream had", Patches: patch("consumers/engine/reconcile.go",
		"\tcase last.Seq < s.entity.LastEvent &&",
		"\tcase false && last.Seq < s.entity.LastEvent &&")},
	{
		Name: "early-timer", Test: "./machines TestATimerBeforeItsTimeIsIgnored", Why: "the simulated server fires no timer before its time by its own clock",
		Out: "that a timer that fires early is put back", Patches: patch("machines/step.go",
			"if !ok || t.Armed != body.Armed || s.in.Time.Before(t.At) {",
			"if !ok || t.Armed != body.Armed {"),
	},
	{Name: "answer-of-now", By: "I4", Out: "that a repeated answer is that of then", Patches: patch("consumers/engine/decide.go",
		"it.answer.State, it.answer.Version, it.answer.Generation = o.State, o.Version, o.Generation\n",
		"it.answer.State, it.answer.Version, it.answer.Generation = o.State, o.Version, it.cached.entity.Generation\n")},
	{Name: "refusal-told-twice", Test: "./consumers/engine TestARefusalIsToldOnceWhenItsAckIsLost", Why: "the stream would have to forget the id of an event before the command behind it is acked", Out: "that a refusal is not told again when its command comes again", Patches: patch("consumers/engine/decide.go",
		"ok && told >= it.seq && !it.time.After(at) {",
		"ok && told > it.seq && it.time.Before(at) {")},
	{
		Name: "replicas-behind", Test: "./streams TestWhenAReplicaIsBehind", Why: "readiness is the server's, which the simulation has no part of",
		Out: "that a node is not ready whose replicas fetch what they lack", Patches: patch("streams/replicas.go",
			"case last+fewBehind < info.State.LastSeq:",
			"case last+fewBehind < info.State.LastSeq && !r.Current:"),
	},
	{
		Name: "unreadable-absent", Test: "./consumers/engine TestADamagedValueIsNotAbsent", Why: "simulated disks lose, and damage nothing",
		Out: "that what cannot be read is not taken for absent", Patches: patch("streams/ask.go",
			"\t\terr = ErrUnreadable\n",
			"\t\terr = nil\n"),
	},
	{
		Name: "one-process-before", Test: "./server TestNodeNameAndNonce", Why: "simulated nodes are told which processes there were before them",
		Out: "that a start knows more processes of its directory than the last one", Patches: patch("server/cluster.go",
			"&& len(before) < remembered {",
			"&& len(before) < 1 {"),
	},

	// Of the outbox: what only tests against a real Postgres find.
	{
		Name: "outbox-unsettled", Test: "./streams/outbox/relay TestASessionThatPassesNothingForgetsNothing", Why: outbox,
		Out: "that a session that has not passed what earlier ones stored leaves word where to read back from", Patches: patch("streams/outbox/relay/session/session.go",
			"\tif s.settled() {\n\t\tm.Since",
			"\tif s.known {\n\t\tm.Since"),
	},
	{
		Name: "outbox-set-back", Test: "./streams/outbox/relay TestADatabaseThatWasSetBack", Why: outbox,
		Out: "that a database is noticed which is older than the marker in the stream", Patches: patch("streams/outbox/relay/session/session.go",
			"kept < before.Generation && o.Pool != nil {",
			"false {"),
	},
	{
		Name: "outbox-isolation", Test: "./streams/outbox/relay TestTheDefaultIsolationDoesNotMatter", Why: outbox,
		Out: "the isolation of the relay's own transactions", Patches: patch("streams/outbox/prepare.go",
			"\t\"default_transaction_isolation\": \"read committed\", ",
			"\t"),
	},
	{
		Name: "outbox-parked-lost", Test: "./streams/outbox/relay TestTheLogPublishesAgainWhatWasParked", Why: outbox,
		Out: "that what a restored stream lacks of parked rows is published again", Patches: patch("streams/outbox/relay/log/deliver/late.go",
			"\tif err != nil || len(seqs) == 0 {\n\t\treturn err\n\t}\n\terr = pgx.BeginFunc",
			"\tif err != nil || len(seqs) >= 0 {\n\t\treturn err\n\t}\n\terr = pgx.BeginFunc"),
	},
	{
		Name: "outbox-lag", Test: "./streams/outbox/relay TestTheLimitOfTheLagHoldsInEachMode", Why: outbox,
		Out: "that appends are refused when the relay lags", Patches: patch("streams/outbox/migrations/00010_outbox.sql",
			"if behind > limit_lag then",
			"if false then"),
	},
	{
		Name: "outbox-old-snapshot", Test: "./streams/outbox/relay TestAnOldSnapshotDoesNotAppendByOldSettings", Why: outbox,
		Out: "that a transaction from before a change of the mode appends nothing", Patches: patch("streams/outbox/migrate.go",
			"\tif changes {\n\t\tif _, err := tx.",
			"\tif false {\n\t\tif _, err := tx."),
	},
}

const outbox = "it is about what the simulation of relays does not draw, or too seldom: other isolation, other settings, a stream that was set back"
