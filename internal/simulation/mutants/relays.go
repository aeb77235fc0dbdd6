package mutants

// relays are guards of the relays of an outbox, which their own simulation finds. No text of a statement can be changed: its model knows them as they are.
var relays = []Mutant{
	{Name: "outbox-unflushed", Of: "relays", By: "I13", Out: "that what was read is on the disk of the database before it is published", Patches: patch("streams/outbox/relay/log/read.go",
		"\tif how == dense {\n\t\tbatch.Queue(sqlFlush",
		"\tif false {\n\t\tbatch.Queue(sqlFlush")},
	{Name: "outbox-fence", Of: "relays", By: "I12", Quick: true, Out: "the wait for transactions that may still write smaller numbers", Patches: patch("streams/outbox/relay/log/read.go",
		"\tif len(now) == 0 {\n\t\td.safe = last",
		"\tif len(now) >= 0 {\n\t\td.safe = last")},
	{Name: "outbox-not-read-back", Of: "relays", By: "I13", Out: "the look for what earlier sessions stored", Patches: patch("streams/outbox/relay/session/session.go",
		"\tif !before.Clean && !s.known {",
		"\tif false && !before.Clean && !s.known {")},
	{Name: "outbox-overtaken", Of: "relays", By: "I13", Out: "that rows wait behind a parked one of their aggregate", Patches: patch("streams/outbox/relay/log/deliver/deliver.go",
		"\t\tif d.parked[r.Aggregate()] != nil {\n\t\t\twaiting = append(waiting, r)\n\t\t\tcontinue",
		"\t\tif false {\n\t\t\twaiting = append(waiting, r)\n\t\t\tcontinue")},
	{Name: "outbox-guard", Of: "relays", By: "I13", Aim: "zombie@event", Out: "the guard of an event", Patches: patch("streams/outbox/relay/sink/publish.go",
		"\tm.Header[headerGuardSubject], m.Header[headerGuard] = s.Guard()\n",
		"\tif subject, _ := s.Guard(); m.Subject == subject[0] {\n\t\tm.Header[headerGuardSubject], m.Header[headerGuard] = s.Guard()\n\t}\n")},
	{Name: "outbox-early", Of: "relays", By: "I13", Out: "that a row is not published before its time", Patches: patch("streams/outbox/relay/log/deliver/deliver.go",
		"\t\tif r.Later { // it asked",
		"\t\tif false && r.Later { // it asked")},
	{Name: "outbox-attempts", Of: "relays", By: "I13", Out: "that a row is tried as often as is configured before it waits for an operator", Patches: patch("streams/outbox/relay/log/deliver/retry.go",
		"\tif r.Attempts >= d.Config.Attempts {",
		"\tif r.Attempts >= 0 {")},

	// Of mode claim alone.
	{Name: "outbox-unmarked", Of: "relays", By: "I13", Aim: "crash@markSent", Out: "that what an earlier session stored is marked as sent", Patches: patch("streams/outbox/relay/claim/open.go",
		"\tif err := e.Store.Settle(ctx, ids); err != nil {",
		"\tif err := e.Store.Settle(ctx, ids[:0]); err != nil {")},
	{Name: "outbox-behind", Of: "relays", By: "I13", Out: "that claimed rows wait behind a refused one of their aggregate", Patches: patch("streams/outbox/relay/claim/lane.go",
		"\t\tif bad[r.Aggregate()] {",
		"\t\tif false {")},
}
