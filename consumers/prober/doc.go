// Package prober is what the owner of an instance does beside its transitions: it admits registrations, probes, listens
// for heartbeats, and says what follows from them. It decides nothing about states; it sends the reports that the tables
// of machines/instance and machines/preservation take.
//
// [Prober] has fields only; Run works until its context ends:
//
//	p := &prober.Prober{Deps: deps, Shares: shares, Instances: ix, Preservations: px, Checker: &probe.Prober{}, Node: node}
//	err := p.Run(ctx)
//
// Checker is usually a providers/probe.Prober, whose Options say where probes may go: the configuration's ranges, whether
// scripts are enabled, and the listeners of this program. Metrics takes what a program shows of it.
//
// Instances is an index over the bucket of machines/instance whose describe keeps the [*instance.Record] of
// [instance.Decode] in [index.Meta.Value]; an item without one is not looked after. Preservations is an index over the bucket
// of machines/preservation, with its [*preservation.Data] in the same place; nil turns self-preservation off. Commands must have a connection whose inbox lives as long as
// Run. One Run at a time may use a Prober.
//
// What is guaranteed:
//   - One goroutine holds everything that is known; per instance it costs one struct of some hundred bytes and a place in
//     a heap, no goroutine, no timer and no connection. Probes run in a bounded pool.
//   - Only what changes something becomes a command, one at a time per instance: the next decision starts from the
//     revision that the last one made. A refusal says that somebody else was faster, and is no error. Reports carry the claim
//     of the partition: what still waits when that is lost, or when everybody has a whole TTL anew, is not sent, and what
//     arrives after another claim is refused ([consumers.Fence]).
//   - Heartbeats (core NATS, instar.hb.<namespace>.<service>.<instanceId>) touch neither a stream nor a bucket nor the
//     heap. Their body is in package heartbeat. A beat of another generation changes nothing.
//   - Silent for its TTL, an instance becomes suspect; the machine's timer makes it unhealthy after the grace. One that was
//     never heard becomes unhealthy after TTL and grace.
//   - An instance that was unhealthy for too long (Overdue) is confirmed to be gone when this node has seen that for itself: fall
//     probes in a row, or silence of TTL and grace, since it looks after the instance; an alias when what it follows could have
//     shown itself. One that is held down for flapping is told to be calm below flapLow, of eleven results at least.
//   - What the index lists after it was built anew counts, also at lower revisions: the store was restored.
//   - With a partition that is gained, at the start, when the connection to NATS comes back, and when this process was stopped
//     for longer than a second, every instance has one whole TTL, and results in a row are counted anew. When heartbeats were
//     dropped because they came too fast, every instance has one whole TTL; when confirmations of watchers were, no drain ends
//     early before watchers could have said theirs again.
//   - Whoever misses its own timers, or sees more of what was found cease to answer than does answer, does not trust itself (package
//     localhealth): timeouts and TTLs grow by that, and above 2 it reports nothing that speaks against anybody.
//   - An instance is lost when it was silent for its TTL, or its probes fail, fall in a row. When more than 15 % of those of a
//     service in a zone, and at least three, are lost without an answer within a window (the longest TTL and grace, or
//     time for fall probes; at least 30 s), or more than half in whatever way, none is taken out: preservation gets losses,
//     and they get protect. It ends as the table of machines/preservation says; a new owner ends nothing before it has seen
//     for itself who is well. Below that, at most 15 % of a service, but two in any case, go in five seconds, by whatever
//     cause, in random order; and so do those whose protection ends. What an instance says of itself (critical), and what
//     an alias follows, counts at once.
//   - Flapping is scored by hard states only: after rise passes or fall failures in a row. At most 15 % of a zone, but two in
//     any case, are held down, none where it is protected, and never the last of its service that clients find: others that
//     are suspect, about to be taken out, in maintenance or without weight do not count.
//   - Nothing is stored to say that nothing changed: a zone that is held, an instance that is protected or held down, and one
//     that is overdue have no deadline that is set again and again. Their state is in the record, and the next owner finds it.
//   - A drain is completed early when the instance has said since it began that nothing is in flight (inFlight 0, in a
//     heartbeat; instances of any check may send them), and every watcher that was heard in the last 30 s has confirmed
//     the revision by what it said last (instar.ack.<namespace>.<service>, {"watcher", "index"}, at least every 10 s, under a
//     name that nobody else has). Who watches an instance that could be found before this node looked after it, or heard
//     everything, is known after 30 s: before then nothing is completed early. An instance that never says what is in
//     flight waits for its deadline: nobody else knows.
//   - Where several nodes observe (check.observers), the ones that rank highest for an instance probe it, beside its owner,
//     and tell the owner on instar.obs.<namespace>.<service>.<instanceId>. The owner reports each observer that sees
//     something else than it is known for; the table counts them. A node that goes is not the instance's fault: its place
//     is taken by the next one.
package prober
