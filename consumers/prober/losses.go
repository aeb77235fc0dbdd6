package prober

// Counting losses, and limiting removals. lost says since when an instance is silent or fails; losses counts them in a zone, by which preserve.go enters and leaves
// self-preservation; full and mayHold limit how many instances are removed or held down at a time. Everything is computed from what is tracked.

import (
	"slices"
	"time"

	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
)

const (
	leastWindow  = 30 * time.Second
	expirySweep  = 5 * time.Second
	leastExpired = 2 // of a service in a sweep, or held down of a zone, however small it is: fewer than what protects it
)

// loss is an instance that should be well and is not, as far as this node can tell.
type loss struct {
	since time.Duration
	mute  bool // it gives no sign, be it by its own fault or by that of the network; else it answers that it is not well
}

// lost is the loss of an instance, or nil. One that says of itself that it is not well, or follows another one, is none: what it says is known to be true.
func (l *loop) lost(t *tracked, now time.Duration) *loss {
	if t.kind == instance.CheckTTL {
		if since := max(t.seen, l.floor) + t.rec.Data.Check.TTLOf(); since <= now {
			return &loss{since, true}
		}
		return nil
	}
	l.renewed(t)
	failed := t.fails >= t.rec.Data.Fall()
	if hasObservers(t) {
		failed = l.agreed(t)
	}
	if !probing(t.kind) || !failed {
		t.fell = 0
		return nil
	}
	if t.fell == 0 {
		t.fell, t.zone.counted = now, 0
	}
	return &loss{t.fell, t.last == nil || unanswered(t.last.Class)}
}

// unanswered reports whether a probe failed in a way that may be the network's, or this node's, as well as the instance's.
func unanswered(class string) bool {
	switch class {
	case instance.FailedTimeout, instance.FailedUnreachable, instance.FailedResolve:
		return true
	}
	return false
}

// critical: it said so itself, in a heartbeat.
func (t *tracked) critical() bool {
	return t.kind == instance.CheckTTL && t.fails >= t.rec.Data.Fall()
}

// shown: this node has observed itself that it is well. A node that has just begun to observe has seen none.
func (l *loop) shown(t *tracked, now time.Duration) bool {
	if t.kind == instance.CheckTTL {
		return t.heard != 0 && t.heard+t.rec.Data.Check.TTLOf() > now
	}
	return t.passes > 0
}

// Which losses count.
type counting int

const (
	atOnce counting = iota // those since the window began: too many of them protect a zone
	all                    // too many of them protect it again
	proven                 // those that were not seen to be well: few enough of them end the protection
)

// losses counts who should be well in a zone, and who is lost.
func (l *loop) losses(z *zone, now time.Duration, which counting) preservation.Losses {
	window, total, mute, lost := l.window(z), 0, 0, 0
	for t := range z.service.members {
		if t.zone != z || !t.owned || t.kind != instance.CheckTTL && !probing(t.kind) {
			continue
		}
		it := l.lost(t, now)
		old := it != nil && it.since < max(now-window, z.ignore)
		switch t.state {
		case instance.Warming, instance.Healthy, instance.Suspect:
		case instance.Unhealthy:
			if it == nil || old { // it speaks for itself, or is not waited for any more
				continue
			}
		default:
			continue
		}
		if which == atOnce && old {
			continue
		}
		total++
		if it != nil || which == proven && !l.shown(t, now) {
			if lost++; it == nil || it.mute {
				mute++
			}
		}
	}
	n := preservation.Losses{Total: total, Expiring: mute, Window: window.String(), Limit: preservation.DefaultLimit, Blind: z.unreachable()}
	if n.Exceed() || lost == mute {
		return n
	}
	return preservation.Losses{Total: total, Expiring: lost, Window: window.String(), Limit: preservation.FailingLimit}
}

// window is the time in which losses of a zone come at once.
func (l *loop) window(z *zone) time.Duration {
	window := leastWindow
	for t := range z.service.members {
		if t.zone != z {
			continue
		}
		if c := &t.rec.Data.Check; t.kind == instance.CheckTTL {
			window = max(window, c.TTLOf()+c.GraceOf())
		} else if probing(t.kind) {
			window = max(window, time.Duration(t.rec.Data.Fall()+1)*(c.IntervalOf()+c.TimeoutOf()))
		}
	}
	return window
}

// full reports whether this sweep has taken out so many, by whatever cause, that this one must wait. One that was found again is not counted: it would keep dead ones in.
func (s *service) full(t *tracked, now time.Duration) bool {
	if s.sweepAt == 0 || now-s.sweepAt > expirySweep {
		s.sweepAt = now
		clear(s.expired)
	}
	_, counted := s.expired[t.key]
	return !counted && len(s.expired) >= bound(len(s.members))
}

// reportRemoval is report for what may take an instance out, which then counts against the limit of this sweep (full).
func (l *loop) reportRemoval(t *tracked, now time.Duration, input string, data any, out bool) bool {
	if !l.report(t, now, input, data) {
		return false
	}
	if out {
		t.service.expired[t.key] = struct{}{}
	}
	return true
}

// mayBeRemoved reports whether what speaks against an instance may take it out: one that is protected becomes suspect.
func (t *tracked) mayBeRemoved() bool { return t.found() && !t.rec.Data.Protected }

// uncountRemoval: an instance that was not taken out after all, or is found again, no longer counts against the limit of this sweep.
func (t *tracked) uncountRemoval() {
	if t.found() {
		delete(t.service.expired, t.key)
	}
}

// bound is how many of so many may be taken out at once.
func bound(total int) int { return max(leastExpired, int(preservation.DefaultLimit*float64(total))) }

// underway reports whether one of these reports is on its way, or changed what has not arrived yet.
func (t *tracked) underway(reports ...string) bool {
	return (t.inFlight || t.await > t.revision) && slices.Contains(reports, t.lastReport.what)
}

// mayHold reports whether one more instance of a zone may be held down for flapping, and is not the last of its service that clients find.
func (l *loop) mayHold(t *tracked, now time.Duration) bool {
	held, total := 1, 0
	for m := range t.service.members {
		if !m.owned || !m.active() || m.zone != t.zone {
			continue
		}
		if total++; m != t && (m.state == instance.Flapping || m.underway(instance.ReportFlap)) {
			held++
		}
	}
	return held <= bound(total) && l.accompanied(t, now)
}

// accompanied reports whether clients find another one of its service: one that has a weight, and that nothing is about to take out.
func (l *loop) accompanied(t *tracked, now time.Duration) bool {
	clock := time.Now()
	for m := range t.service.members {
		switch {
		case m == t, !m.owned, !m.found(), m.underway(instance.ReportFailed, instance.ReportMissed, instance.ReportFlap):
		case !m.rec.Data.Protected && !m.zone.protects() && l.lost(m, now) != nil:
		case instance.Weight(&m.rec.Data, m.state, m.rec.Since, clock) > 0:
			return true
		}
	}
	return false
}
