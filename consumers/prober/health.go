package prober

import (
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
	blindCount = 5                // so many that passed before fail, and none passes
	blindFor   = 30 * time.Second // then it is believed
)

// health is what this node thinks of itself.
type health struct {
	lastTick time.Duration
	score    int // by late timers
	calm     time.Duration
	floor    time.Duration // nobody is silent since before then
	epoch    uint64        // of results in a row

	failed    map[string]time.Duration // instances whose probes began to fail, as they may by this node's fault
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

// weighDoubt looks at the probes together. Whatever was answered, be it by a refusal, shows that the network is there.
func (l *loop) weighDoubt(t *tracked, r *instance.Result, now time.Duration) {
	switch r.Class {
	case instance.FailedTimeout, instance.FailedUnreachable, instance.FailedResolve:
	default:
		if l.blinded(now) { // what failed meanwhile may have failed by that
			l.epoch++
		}
		l.blind, t.doubted = false, false
		clear(l.failed)
		return
	}
	if _, counts := l.failed[t.key]; !t.found() && t.state != instance.Suspect || t.doubted && !counts {
		return // it was looked at in this light before: what is dead would be doubted each time that another one passes
	}
	t.doubted = true
	if l.failed == nil {
		l.failed = map[string]time.Duration{}
	}
	l.failed[t.key] = now
	if l.blind {
		return
	}
	n := 0
	for key, at := range l.failed {
		if now-at > blindSpan {
			delete(l.failed, key)
			continue
		}
		n++
	}
	if n >= blindCount {
		l.blind, l.blindFrom = true, now
		l.log.Warn("all probes fail at once: this node doubts itself", "instances", n)
	}
}

// blinded: all probes fail, and that is new.
func (l *loop) blinded(now time.Duration) bool { return l.blind && now-l.blindFrom < blindFor }
