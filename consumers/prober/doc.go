// Package prober is what the owner of an instance does beside its transitions: it admits registrations, probes, listens for heartbeats, and says what follows from them. It
// decides nothing about states; it sends the reports that the tables of machines/instance and machines/preservation take.
//
// [Prober] has fields only; Run works until its context ends:
//
//	p := &prober.Prober{Deps: deps, Shares: shares, Instances: ix, Preservations: px, Checker: &probe.Prober{}, Node: node}
//	err := p.Run(ctx)
//
// Checker is usually a providers/probe.Prober, whose Options say where probes may go. Metrics takes what a program shows of it.
//
// Instances is an index over the bucket of machines/instance whose describe keeps the [*instance.Record] of [instance.Decode] in [index.Meta.Value]; an item without one is not
// looked after. Preservations is an index over the bucket of machines/preservation, with its [*preservation.Data] in the same place; nil turns self-preservation off. Commands
// must have a connection whose inbox lives as long as Run. One Run at a time may use a Prober.
//
// What is guaranteed:
//   - One goroutine holds everything that is known. An instance costs a struct of some hundred bytes and a place in a heap; probes run in a bounded pool.
//   - Only what changes something becomes a command, one at a time per instance: the next decision starts from the revision that the last one made. A refusal means that somebody else was faster, and is no error.
//     Reports carry the claim of their partition, and are neither sent nor accepted ([consumers.Fence]) after another claim.
//   - Heartbeats (core NATS; their body is in package heartbeat) touch no stream, no bucket and not the heap. A beat of another generation changes nothing. When each instance was heard last is told to who asks on
//     instar.heard.
//   - Silent for its TTL, an instance becomes suspect; the machine's timer makes it unhealthy after the grace. One that was never heard becomes unhealthy after TTL and grace.
//   - An instance that was unhealthy for too long (Overdue) is reported as gone when this node has seen that for itself since it looks after it: fall probes in a row, or silence of TTL and grace; of an alias, when
//     what it follows could have shown itself. One that is held down for flapping is reported as calm below flapLow, of eleven results at least.
//   - What the index lists after it was built anew counts, also at lower revisions: the store was restored.
//   - When a partition is gained, at the start, after a lost connection to NATS, and when this process stood still for more than a second, every instance has a whole TTL, and results in a row are counted anew. So
//     it is when heartbeats were dropped, but for the results. After dropped confirmations no drain ends early before watchers could have repeated theirs.
//   - A node that is late with its own timers, or sees most of what was found cease to answer, distrusts itself (package localhealth): timeouts and TTLs grow, and above 2 it reports nothing that speaks against an
//     instance.
//   - An instance is lost when it was silent for its TTL, or its probes fail, fall in a row. When more than 15 % of those of a service in a zone, and at least three, are lost without an answer within a window (the
//     longest TTL and grace, or time for fall probes; at least 30 s), or more than half in whatever way, none is taken out: preservation gets losses, and they get protect. It ends as the table of
//     machines/preservation says; a new owner ends nothing before it has seen for itself who is well. Below that, at most 15 % of a service, but two in any case, go in five seconds, by whatever cause, in random
//     order; and so do those whose protection ends. What an instance says of itself (critical), and what an alias follows, counts at once.
//   - Flapping is scored by hard states only: after rise passes or fall failures in a row. At most 15 % of a zone, but two in any case, are held down, none where it is protected, and never the last of its service
//     that clients find: others that are suspect, about to be taken out, in maintenance or without weight do not count.
//   - Nothing is stored to say that nothing changed: what is held, protected, held down or overdue has no deadline that is set again and again. The next owner finds its state in the record.
//   - A drain is completed early when the instance has reported since it began that nothing is in flight (inFlight 0, in a heartbeat; instances of any check may send them), and every watcher that was heard in the
//     last 30 s has confirmed the revision in its last message (instar.ack.<namespace>.<service>, {"watcher", "index"}, at least every 10 s, under a name of its own). Until all watchers must have been heard, for 30
//     s, no drain of an instance is completed early that could be found before this node looked after it. One that never says what is in flight waits for its deadline.
//   - Where several nodes observe (check.observers), those that rank highest for an instance probe it beside its owner, and report to the owner on instar.obs.<namespace>.<service>.<id>. The owner reports each
//     observer whose view has changed; the table counts them. A node that goes is replaced by the next one, and counts against no instance.
package prober
