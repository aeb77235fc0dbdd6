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
}
