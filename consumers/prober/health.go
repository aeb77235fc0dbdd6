package prober

import (
	"cmp"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// When this node doubts itself.
const (
	late       = 250 * time.Millisecond // a timer that is later counts
	standstill = time.Second            // one that is later was a standstill: nothing was heard meanwhile
	recover1   = time.Second            // without a late one, doubt falls by one
	maxDoubt   = 7
	silentFrom = 3 // from here on it keeps what it sees to itself

	blindSpan  = 10 * time.Second // probes of this time are looked at together
	blindCount = 5                // so many that were found give no answer, and fewer do
	blindFor   = 30 * time.Second // then zones are protected where it would take any of them out
)

// health is what this node thinks of itself.
type health struct {
	lastTick time.Duration
	score    int // by late timers
	calm     time.Duration
	floor    time.Duration // nobody is silent since before then
	epoch    uint64        // of results in a row

	failed    map[*tracked]time.Duration // instances that were found and give no answer, as they may by this node's fault
	weighed   time.Duration
	blind     bool
	blindFrom time.Duration
}

// doubt is this node's standing, 0 to 7.
func (l *loop) doubt(now time.Duration) int {
	if l.blinded(now) {
		return maxDoubt
	}
	return l.score
}

// trusted reports whether this node may speak against others.
func (l *loop) trusted(now time.Duration) bool {
	return l.doubt(now) < silentFrom && l.NC.IsConnected()
}

// wake comes before anything that may be decided: after a standstill the ticker is not always the first to tell of it.
func (l *loop) wake() {
	if l.now()-l.lastTick > tick+late {
		l.tick()
	}
}

// tick measures how late the loop is.
func (l *loop) tick() {
	now := l.now()
	lag := now - l.lastTick - tick
	l.lastTick = now
	l.counts.lag = max(l.counts.lag, lag)
	switch {
	case lag > standstill:
		l.score, l.calm = min(l.score+silentFrom, maxDoubt), now
		l.amnesty("this process stood still")
	case lag > late:
		l.score, l.calm = min(l.score+1, maxDoubt), now
	case l.score > 0 && now-l.calm > recover1:
		l.score, l.calm = l.score-1, now
	}
}

// amnesty gives everybody a whole TTL, and lets failures be counted anew.
func (l *loop) amnesty(why string) {
	l.floor = l.now()
	l.epoch++
	l.log.Info("every instance has a whole TTL from now", "reason", why, "instances", len(l.tracked))
}

// deafened: what was dropped on the way to this loop may have been anybody's heartbeat, so nobody is silent.
func (l *loop) deafened() {
	n := 0
	for _, s := range l.subs {
		d, err := s.Dropped()
		if err != nil { // the connection is closed
			return
		}
		n += d
	}
	if n > l.dropped {
		l.dropped = n
		l.amnesty("messages came faster than they were read, and were dropped")
	}
}

// weighDoubt looks at the probes together. Whatever was answered, be it by a refusal, shows that the network is there, as
// far as that instance; what gives no answer any more is held against it, as long as it is waited for.
func (l *loop) weighDoubt(t *tracked, r *instance.Result, now time.Duration) {
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
	if !l.blind && now-l.weighed > tick {
		l.weigh(now)
	}
}

// weigh finds out whether more of the instances that this node probes have ceased to answer than do answer. That only some
// of them do is no evidence for the others.
func (l *loop) weigh(now time.Duration) {
	l.weighed = now
	if len(l.failed) < blindCount && !l.blind {
		return
	}
	failed, answered := 0, 0
	fresh := func(t *tracked, at time.Duration) bool {
		return at != 0 && now-at <= max(blindSpan, 2*t.rec.Data.Check.IntervalOf())
	}
	for t, at := range l.failed {
		if fresh(t, at) {
			failed++
			continue
		}
		delete(l.failed, t)
	}
	for _, t := range l.tracked {
		if fresh(t, t.answers) {
			answered++
		}
	}
	switch blind := failed > answered && (failed >= blindCount || l.blind); {
	case blind && !l.blind:
		l.blind, l.blindFrom = true, now
		l.log.Warn("most probes fail at once: this node doubts itself", "instances", failed, "answered", answered)
	case !blind && l.blind: // what failed meanwhile may have failed by that
		l.blind = false
		l.epoch++
	}
}

// blinded: most probes fail, and that is new. What lasts longer is not believed either: see [loop.losses].
func (l *loop) blinded(now time.Duration) bool {
	return l.blind && now-l.blindFrom < cmp.Or(l.blinds, blindFor)
}
