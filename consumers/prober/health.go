package prober

// How far this node trusts what it observes. tick measures how late the loop is, noteAnswer (probes.go) and weigh find where most probes get no answer; trusted and localHealth,
// asked before a report against an instance, weigh both. resetDeadlines gives every instance a whole TTL, after a standstill or a lost connection.

import (
	"cmp"
	"slices"
	"time"

	"github.com/bcc94042/instar/consumers/prober/localhealth"
	"github.com/bcc94042/instar/machines/instance"
)

// When probes speak against this node, and not against what it probes.
const (
	blindSpan  = 10 * time.Second // probes of this time are looked at together
	blindCount = 5                // so many that were found give no answer, and fewer do
	blindFor   = 30 * time.Second // then zones are protected where it would take any of them out
)

// health is what this node thinks of itself.
type health struct {
	timers       localhealth.Timers
	floor        time.Duration // silence counts from then on, at the earliest
	unheard      time.Duration // until then watchers may have spoken that were not heard
	epoch        uint64        // of results in a row
	droppedBeats uint64        // how often heartbeats were dropped: a silence of before is none

	failed  map[*tracked]time.Duration // instances that were found and give no answer, as they may by this node's fault
	weighed time.Duration
	scopes  localhealth.Scopes // in which most probes give no answer
}

// localHealth is how little this node trusts what it sees of a zone, 0 to 7 (package localhealth): by its own timers, and by the scopes of the zone.
func (l *loop) localHealth(z *zone, now time.Duration) int {
	if l.newlyUnreachable(z, now) {
		return localhealth.Max
	}
	return l.timers.Score
}

// trusted reports whether this node may speak against the instances of a zone.
func (l *loop) trusted(z *zone, now time.Duration) bool {
	return l.localHealth(z, now) < localhealth.Untrusted && l.NC.IsConnected()
}

// wake comes before anything that may be decided: after a standstill, the ticker is not always the first to fire.
func (l *loop) wake() {
	if l.timers.Overdue(l.now()) {
		l.tick()
	}
}

// tick measures how late the loop is.
func (l *loop) tick() {
	lag, stood := l.timers.Tick(l.now())
	l.counts.lag = max(l.counts.lag, lag)
	if stood {
		l.resetDeadlines("this process stood still")
	}
}

// resetDeadlines gives every instance a whole TTL, and restarts the count of failures.
func (l *loop) resetDeadlines(why string) {
	l.floor = l.now()
	l.unheard = l.floor
	l.epoch++
	l.log.Info("every instance gets a full TTL from now", "reason", why, "instances", len(l.tracked))
}

// epochOf changes whenever failures of an instance that came before count no more. Of none it is that of all.
func (l *loop) epochOf(t *tracked) uint64 {
	if t == nil {
		return l.epoch
	}
	return l.epoch + t.forgiven
}

// checkDropped: dropped messages may have been anybody's. After heartbeats were, no instance counts as silent; after confirmations, no drain ends early. Probes are not affected.
func (l *loop) checkDropped() {
	for _, s := range l.subs {
		n, err := s.Dropped()
		if err != nil { // the connection is closed
			return
		}
		lost := n - l.dropped[s]
		if lost <= 0 {
			continue
		}
		l.dropped[s] = n
		switch s.Subject {
		case l.Names.Heartbeats():
			l.floor = l.now()
			l.droppedBeats++
			for _, s := range l.services {
				for t := range s.draining {
					t.idle = false // a call may have begun
				}
			}
			l.log.Warn("heartbeats were dropped: every instance gets a full TTL from now", "dropped", lost)
		case l.Names.Acknowledgements():
			l.unheard = l.now()
			l.log.Warn("acknowledgements of watchers were dropped: drains wait for their full time for a while", "dropped", lost)
		}
	}
}

// noteAnswer weighs probes together. Any answer, even a refusal, shows that the network reaches the instance; one that stops answering counts against the network for a while.
func (l *loop) noteAnswer(t *tracked, r *instance.Result, now time.Duration) {
	if !unanswered(r.Class) {
		t.answers = now
		delete(l.failed, t)
		return
	}
	t.answers = 0
	if !t.found() && t.state != instance.Suspect {
		delete(l.failed, t)
		return
	}
	if l.failed == nil {
		l.failed = map[*tracked]time.Duration{}
	}
	l.failed[t] = now
	if now-l.weighed > tick {
		l.weigh(now)
	}
}

// weigh finds out where more of what this node probes has ceased to answer than does answer.
func (l *loop) weigh(now time.Duration) {
	l.weighed = now
	if len(l.failed) < blindCount && !l.scopes.Any() {
		return
	}
	began := l.scopes.Weigh(l.votes(now), now)
	for _, s := range l.services {
		for _, z := range s.zones {
			l.updateReachability(z)
		}
	}
	if len(began) == 0 {
		return
	}
	l.log.Warn("most probes fail at once: this node distrusts its own network", "scopes", len(began), "widest", cmp.Or(slices.MinFunc(began, func(a, b string) int { return cmp.Compare(len(a), len(b)) }), "all"), "instances", len(l.failed))
}

// votes are those of the zones in which anything failed. That of what failed long ago is void.
func (l *loop) votes(now time.Duration) map[string]*localhealth.Votes {
	fresh := func(t *tracked, at time.Duration) bool {
		return at != 0 && now-at <= max(blindSpan, 2*t.rec.Data.Check.IntervalOf())
	}
	zones := map[string]*localhealth.Votes{}
	of := func(z *zone) *localhealth.Votes {
		if zones[z.key] == nil {
			zones[z.key] = &localhealth.Votes{}
		}
		return zones[z.key]
	}
	for t, at := range l.failed {
		if !fresh(t, at) {
			delete(l.failed, t)
			continue
		}
		v := of(t.zone)
		v.Failed, v.Instances = v.Failed+1, v.Instances+1
	}
	for _, t := range l.tracked {
		if fresh(t, t.answers) {
			of(t.zone).Answered++
		}
	}
	return zones
}

// updateReachability notes since when most of a zone gives no answer. When that is over, failures without an answer are forgotten, as they may have been this node's fault.
func (l *loop) updateReachability(z *zone) {
	was := z.unansweredSince
	z.unansweredSince = l.scopes.Since(z.key)
	if was == 0 || z.unansweredSince != 0 {
		return
	}
	for t := range z.service.members {
		if t.zone != z {
			continue
		}
		if t.lit++; t.last != nil && unanswered(t.last.Class) {
			t.forgiven++
		}
	}
}

// unreachable: most probes in a scope that speaks for the zone fail.
func (z *zone) unreachable() bool { return z.unansweredSince != 0 }

// newlyUnreachable: most probes in a scope of the zone fail, and that is new. What lasts longer is not believed either: see [loop.losses].
func (l *loop) newlyUnreachable(z *zone, now time.Duration) bool {
	return z.unreachable() && l.new(z.unansweredSince, now)
}

func (l *loop) new(since, now time.Duration) bool { return now-since < cmp.Or(l.blinds, blindFor) }

// worst is the highest local health of all zones.
func (l *loop) worst(now time.Duration) int {
	if l.scopes.Any() && l.new(l.scopes.Latest(), now) {
		return localhealth.Max
	}
	return l.timers.Score
}
