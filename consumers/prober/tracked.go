package prober

// What is known of each instance, and when something is due for it. load and take bring instances of this node from the index into memory, and update notes a new generation or
// state; plan orders them in a heap by the next deadline (next), and visit, called by run (prober.go), probes, follows an alias, and decides (decide.go).

import (
	"cmp"
	stdheap "container/heap"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/prober/quorum"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
)

const never = time.Duration(1<<63 - 1)

// tracked is what is known of one instance.
type tracked struct {
	key      string
	state    string
	rec      *instance.Record // shared with the index
	kind     string
	revision uint64
	entered  time.Duration // its state
	service  *service
	owned    bool // else it is only observed, for its owner

	due   time.Duration
	place int // in the heap

	probeAt      time.Duration
	probing      bool
	slow         bool // the last one took long
	passes       int  // results in a row, since epoch
	fails        int
	epoch        uint64
	lit          uint64 // how often a scope of it gave answers again
	forgiven     uint64 // of what failed while this node did not trust what it saw of it
	flaps        instance.Flaps
	last         *instance.Result       // the last one that failed
	fell         time.Duration          // since when it is lost; 0 is that it is not
	answers      time.Duration          // when its last probe was answered; 0 is that it was not
	observations map[string]quorum.View // of other observers

	seen    time.Duration // last heard, or since when it is listened to
	heard   time.Duration // last heard; 0 is never
	zone    *zone
	follows string        // key of the instance that an alias follows
	weight  int           // its own word; -1 is none
	weighed time.Duration // when that was reported
	stale   bool          // beats of another generation were logged
	held    bool          // its admission waits for its first heartbeat

	fresh   bool   // clients could not find it before this node looked after it
	drainAt uint64 // revision in which it began to drain
	idle    bool   // it has said since that nothing is in flight

	inFlight     bool
	unanswered   int           // reports in a row that were not answered
	nextReport   time.Duration // then the next may be sent, and is looked for; 0 is at any time
	await        uint64        // revision in the last answer; nothing is decided before it has arrived
	until        time.Duration // or before this time
	retryAt      time.Duration // nothing is due before then but probes
	lastReport   lastReport    // last, at the revision sentAt; not again before again
	lastReportAt uint64
	again        time.Duration
}

// lastReport is what was reported, and which observer said so.
type lastReport struct{ what, by string }

func (t *tracked) probed() bool { return probing(t.kind) && t.active() }

// admittedWithBeat: its first heartbeat is reported together with its admission.
func (t *tracked) admittedWithBeat() bool { return t.kind == instance.CheckTTL && !hasObservers(t) }

// probing says whether a check of that kind is a probe.
func probing(kind string) bool { return instance.SourceOf(kind) == instance.Probes }

func (t *tracked) active() bool { return strings.HasPrefix(t.state, "active.") }

// awaitsEnd: it ends, or is let go, as soon as it is seen to be silent.
func (t *tracked) awaitsEnd() bool {
	switch t.state {
	case instance.Unhealthy:
		return !t.rec.Data.Overdue.IsZero()
	case instance.Flapping:
		return t.kind == instance.CheckTTL && t.rec.Data.Flap != nil && !t.rec.Data.Flap.Calm
	}
	return false
}

func (t *tracked) found() bool { return t.state == instance.Healthy || t.state == instance.Warming }

// load tracks the instances that this node owns or observes, and no others.
func (l *loop) load(owned cluster.Set) {
	if builds := l.Instances.Stats().Builds; builds != l.builds {
		if l.builds != 0 {
			l.restored()
		}
		l.builds = builds
	}
	l.claim(owned, l.now())
	for _, s := range l.services { // what was on its way for another owner's zones is not for this node to say again
		if !owned.Has(streams.Partition(instance.Machine.Name, s.name)) {
			for _, z := range s.zones {
				z.tripped, z.denied = false, 0
			}
		}
	}
	there := make(map[string]bool, len(l.tracked))
	for q := (index.Query{Limit: 1000}); ; {
		page := l.Instances.List(q)
		for i := range page.Items {
			l.take(&page.Items[i])
			there[page.Items[i].Key] = true
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	for key, t := range l.tracked {
		if !there[key] {
			l.drop(t)
		}
	}
}

// claim is what this node owns from now on. What was lost and claimed again at once was somebody else's in between.
func (l *loop) claim(owned cluster.Set, now time.Duration) {
	var again cluster.Set
	for p := range streams.Partitions {
		if !owned.Has(p) {
			continue
		}
		claim := l.Shares.Claim(p)
		switch {
		case claim == 0: // it has been lost since, which is reported next
			owned &^= 1 << p
			continue
		case !l.owned.Has(p):
			l.gained[p] = now
		case claim != l.claims[p]:
			l.gained[p] = now
			again |= 1 << p
		}
		l.claims[p] = claim
	}
	l.owned = owned
	if again == 0 {
		return
	}
	for _, t := range l.tracked {
		if t.owned && again.Has(t.partition()) {
			l.drop(t)
		}
	}
}

// partition is that of an instance; all instances of a service share one.
func (t *tracked) partition() int { return streams.Partition(instance.Machine.Name, t.key) }

// restored forgets what is known of all instances, and what watchers have confirmed, when the index was built anew: the store may have been restored, or have lost its end, and
// gives revisions that were seen out again. Who watches is listened for again.
func (l *loop) restored() {
	for _, s := range l.services {
		s.watchers.Clear()
	}
	for _, t := range l.tracked {
		l.drop(t)
	}
	clear(l.ended)
	l.anew = l.Instances.Revision()
	l.resetDeadlines("all instances were read anew")
}

func (l *loop) changed(c *index.Change) {
	if c.Deleted {
		if t := l.tracked[c.Item.Key]; t != nil {
			l.drop(t)
		}
	} else {
		l.take(&c.Item)
	}
	for f := range l.aliases[c.Item.Key] {
		l.followAlias(f)
	}
}

// take keeps what the index says of an instance, if this node has to do with it.
func (l *loop) take(item *index.Item) {
	t := l.tracked[item.Key]
	rec, ok := item.Value.(*instance.Record)
	owned := l.owned.Has(streams.Partition(instance.Machine.Name, item.Key))
	if !ok || item.State == instance.Deregistered || !owned && !l.observes(item.Key, rec) {
		if t != nil {
			l.end(t)
		}
		return
	}
	now := l.now()
	if t != nil && t.owned != owned {
		l.drop(t)
		t = nil
	}
	switch {
	case t == nil:
		t = l.track(item, rec, owned, now)
	case item.Revision <= t.revision:
		return
	}
	l.update(t, item, rec, now)
	l.takeEarly(t, now)
	l.decide(t, now)
	l.plan(t, now)
}

func (l *loop) track(item *index.Item, rec *instance.Record, owned bool, now time.Duration) *tracked {
	t := &tracked{key: item.Key, owned: owned, place: -1, weight: -1, seen: now, epoch: l.epoch, probeAt: never}
	t.fresh = item.State == instance.Pending && (rec.Generation == 1 || l.known(t))
	l.tracked[t.key] = t
	t.service = l.service(rec.Namespace + "." + rec.Service)
	t.service.join(t, l.strays.Turned)
	return t
}

// update takes over what the index says of an instance.
func (l *loop) update(t *tracked, item *index.Item, rec *instance.Record, now time.Duration) {
	before, old := t.rec, t.state
	t.rec, t.state, t.revision = rec, item.State, item.Revision
	born := before == nil || before.Generation != rec.Generation
	if born {
		l.born(t, now)
	}
	if born || old != t.state || !before.Since.Equal(rec.Since) { // it may have left and come back: changes that wait become one
		l.entered(t, old, now)
	}
}

// born begins a generation: nothing that was seen of another one counts.
func (l *loop) born(t *tracked, now time.Duration) {
	l.unfollow(t)
	t.kind, t.zone = t.rec.Data.Check.Kind(), t.service.zone(t.rec.Data.Zone)
	t.passes, t.fails, t.flaps, t.last, t.observations = 0, 0, instance.Flaps{}, nil, nil
	t.seen, t.heard, t.fell, t.answers = now, 0, 0, 0
	t.weight, t.stale, t.lastReport, t.retryAt, t.probeAt = -1, false, lastReport{}, 0, never
	t.unanswered, t.nextReport = 0, 0
	if t.kind == instance.CheckAlias {
		t.follows, t.probeAt = aliasKey(t.rec), now
		if l.aliases[t.follows] == nil {
			l.aliases[t.follows] = map[*tracked]struct{}{}
		}
		l.aliases[t.follows][t] = struct{}{}
	}
}

func (l *loop) entered(t *tracked, from string, now time.Duration) {
	switch from {
	case instance.Flapping:
		t.passes, t.fails, t.flaps = 0, 0, instance.Flaps{} // else one that was let go for being the last is held again at once
	case instance.Draining:
		t.passes, t.fails = 0, 0
	}
	t.retryAt, t.entered, t.held = 0, now, false
	switch t.state {
	case instance.Pending:
		if t.held = t.admittedWithBeat() && t.rec.Data.Rise() == 1 && t.passes == 0; t.held {
			t.retryAt = now + cmp.Or(l.hold, firstBeat)
		}
	case instance.Unknown:
		t.seen = max(t.seen, now)
	case instance.Warming, instance.Healthy:
		t.uncountRemoval()
	case instance.Unhealthy:
		if t.kind == instance.CheckTTL && from == instance.Suspect {
			t.flaps.Add(false)
		}
	case instance.Draining:
		t.drainAt, t.idle = max(t.revision, l.anew), false
		t.service.draining[t] = struct{}{}
	}
	if t.state != instance.Draining {
		delete(t.service.draining, t)
	}
	if t.probed() && t.probeAt == never {
		t.probeAt = now + spread(t.rec.Data.Check.Every(t.state, false))
	}
	if t.kind == instance.CheckAlias {
		t.probeAt = now
	}
}

// spread is a random part of a duration.
func spread(d time.Duration) time.Duration { return rand.N(max(d, 1)) } // no secret

func (l *loop) drop(t *tracked) {
	l.unfollow(t)
	delete(l.failed, t)
	delete(t.service.members, t)
	delete(t.service.draining, t)
	delete(l.tracked, t.key)
	if t.place >= 0 {
		stdheap.Remove(&l.due, t.place)
	}
	t.place, t.rec = -1, nil // whatever is on its way for it is not for it any more
}

func (t *tracked) gone() bool { return t.rec == nil }

// plan puts the instance where it is due next.
func (l *loop) plan(t *tracked, now time.Duration) {
	if t.gone() {
		return
	}
	t.due = max(l.next(t, now), now)
	if t.place < 0 {
		stdheap.Push(&l.due, t)
		return
	}
	stdheap.Fix(&l.due, t.place)
}

// next is when something is to be done for an instance: it may be too early, never too late.
func (l *loop) next(t *tracked, now time.Duration) time.Duration {
	at := never
	if t.probed() && !t.probing || t.kind == instance.CheckAlias && t.active() {
		at = t.probeAt
	}
	switch {
	case !t.owned, t.inFlight:
		return at
	case t.await > t.revision && now < t.until:
		return min(at, t.until)
	case t.state == instance.Pending:
		return min(at, t.retryAt)
	case t.state == instance.Draining:
		return min(at, now+sweepEvery)
	case t.nextReport != 0: // whatever else puts the next look off
		return min(at, t.nextReport)
	}
	due := l.silentAt(t)
	if due <= now { // local health or protection moved it
		due = now + tick
	}
	if t.awaitsEnd() {
		end := l.goneAt(t)
		if end <= now { // it was said, or this node may not say it
			end = now + sweepEvery
		}
		due = min(due, end)
	}
	if t.rec.Data.Protected && !t.zone.protects() {
		due = now
	}
	return min(at, max(due, t.retryAt))
}

// visit does what is due.
func (l *loop) visit(t *tracked, now time.Duration) {
	if t.state == instance.Pending && t.owned && now >= t.retryAt {
		l.admit(t, now)
	}
	if t.kind == instance.CheckAlias && now >= t.probeAt {
		l.followAlias(t)
	}
	if t.probed() && !t.probing && now >= t.probeAt {
		l.probe(t, now)
	}
	l.decide(t, now)
	if now >= t.nextReport { // it was looked for, and said if there is still anything to say
		t.nextReport = 0
	}
	l.plan(t, now)
	if !t.gone() && t.due <= now { // whatever it is, it cannot be done now
		t.due = now + tick
		stdheap.Fix(&l.due, t.place)
	}
}
