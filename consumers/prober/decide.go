package prober

// From what is known of an instance to a report. decide, called whenever that may have changed (a heartbeat, a result, an answer, a deadline), sends at most one report
// (send.go): flapping, weight, passed, failed or silent from here, the others from gone.go, observers.go, preserve.go and drain.go.

import (
	"fmt"
	"math"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// decide reports what there is to report of an instance, if anything. It goes by how things are, not by what happened: it may be called at any time, and again.
func (l *loop) decide(t *tracked, now time.Duration) {
	if !t.owned || t.gone() || t.inFlight || now < t.nextReport || t.await > t.revision && now < t.until {
		return
	}
	l.renewed(t)
	switch {
	case t.state == instance.Pending:
	case t.state == instance.Draining:
		l.drained(t, now)
	case !t.active():
	case l.updateProtection(t, now), l.reportFlapping(t, now), l.reportWeight(t, now):
	case hasObservers(t):
		if !l.reportViews(t, now) {
			l.reportGone(t, now)
		}
	case l.reportPassed(t, now), l.reportUnhealthy(t, now), l.reportGone(t, now):
	default:
		l.reportSilence(t, now)
	}
}

// reportFlapping reports that the results change too often, and of one that is held down also that they do not any more, or that it is the last one.
func (l *loop) reportFlapping(t *tracked, now time.Duration) bool {
	d := &t.rec.Data
	score, input, last := t.flaps.Score(), instance.ReportFlap, false
	switch held := t.state == instance.Flapping; {
	case held && l.isLast(t, now):
		input, last = instance.ReportCalm, true
	case held && d.Flap != nil && !d.Flap.Calm:
		if score, input = l.unrest(t, now), instance.ReportCalm; score >= d.FlapLow() {
			return false
		}
	case !held && (d.Policy.NoFlap || d.Protected || t.zone.protects()), score < d.FlapHigh():
		return false
	}
	if input == instance.ReportFlap && (!l.trusted(t.zone, now) || t.state != instance.Flapping && !l.mayHold(t, now)) {
		return false
	}
	return l.report(t, now, input, instance.FlapReport{Score: math.Round(score*10) / 10, Generation: t.rec.Generation, Last: last})
}

// isLast reports whether one that is held down answers, while clients find nobody else of its service: better one that changes than none.
func (l *loop) isLast(t *tracked, now time.Duration) bool {
	return t.passes > 0 && l.lost(t, now) == nil && l.NC.IsConnected() && !l.accompanied(t, now)
}

// leastResults are needed to call one calm that is held down: who has just begun to observe it has seen no change for that reason.
const leastResults = 11

// unrest is the score of one that is held down, and the highest one while too little is known. One that falls silent changes no more, unless it is this node that hears nothing.
func (l *loop) unrest(t *tracked, now time.Duration) float64 {
	switch {
	case t.kind == instance.CheckTTL && l.NC.IsConnected() && l.goneAt(t) <= now:
		return 0
	case t.flaps.Len() < leastResults:
		return 100
	}
	return t.flaps.Score()
}

// Changes of an instance's own weight are reported at most so often, and only when they are of a tenth at least.
const weighEvery = 5 * time.Second

func (l *loop) reportWeight(t *tracked, now time.Duration) bool {
	if t.weight < 0 || !t.found() || t.weighed != 0 && now-t.weighed < weighEvery {
		return false
	}
	if told := t.rec.Data.Reported; told != nil && t.weight != 0 && *told != 0 && 10*max(t.weight-*told, *told-t.weight) < *told || told != nil && *told == t.weight {
		return false
	}
	v := l.evidence(t)
	v.Consecutive, v.Weight = max(t.passes, 1), &t.weight
	t.weighed = now
	return l.report(t, now, instance.ReportPassed, v)
}

// reportPassed reports that it is well again.
func (l *loop) reportPassed(t *tracked, now time.Duration) bool {
	switch t.state {
	case instance.Unknown, instance.Unhealthy:
		if t.passes < t.rec.Data.Rise() {
			return false
		}
	case instance.Suspect:
		if t.passes < t.rec.Data.Rise() && (t.kind != instance.CheckTTL || t.passes == 0) {
			return false
		}
	default:
		return false
	}
	v := l.evidence(t)
	v.Consecutive = t.passes
	return l.report(t, now, instance.ReportPassed, v)
}

// reportUnhealthy reports that it is not well.
func (l *loop) reportUnhealthy(t *tracked, now time.Duration) bool {
	if t.kind != instance.CheckTTL && !l.trusted(t.zone, now) { // of heartbeats it is the instance's own word
		return false
	}
	d := &t.rec.Data
	fallen := t.fails >= d.Fall()
	if t.state == instance.Unhealthy {
		fallen = d.Policy.MaxFailures > 0 && t.fails > d.Retries
	}
	switch {
	case !fallen, t.state == instance.Flapping:
		return false
	case probing(t.kind) && l.isPreserved(t, now): // what it says itself, and what an alias follows, is known to be true
		return false
	case d.Protected && !t.found(): // nothing takes it out
		return false
	}
	return l.reportRemoval(t, now, instance.ReportFailed, l.failure(t), probing(t.kind) && t.mayBeRemoved())
}

func (l *loop) evidence(t *tracked) instance.Evidence {
	return instance.Evidence{Observer: l.Node, Kind: t.kind, At: time.Now().UTC().Truncate(time.Millisecond), Generation: t.rec.Generation}
}

// failure is the evidence of what failed last.
func (l *loop) failure(t *tracked) instance.Evidence {
	v := l.evidence(t)
	v.Consecutive = t.fails
	if r := t.last; r != nil {
		v.Status, v.Output, v.Latency = r.Status, r.Output, float64(r.Latency.Microseconds())/1000
	}
	return v
}

// silentAt is when one that sends heartbeats will have been silent for its TTL, or for TTL and grace if it was never heard; never for others, and once silence is reported.
func (l *loop) silentAt(t *tracked) time.Duration {
	if t.kind != instance.CheckTTL {
		return never
	}
	c := &t.rec.Data.Check
	switch t.state {
	case instance.Warming, instance.Healthy:
		return max(t.seen, l.floor) + c.TTLOf()
	case instance.Unknown:
		return max(t.seen, l.floor) + c.TTLOf() + c.GraceOf()
	}
	return never
}

// reportSilence reports that nothing was heard for too long, unless it is this node that does not hear, or too many are silent.
func (l *loop) reportSilence(t *tracked, now time.Duration) {
	at := l.silentAt(t)
	if at > now || now < t.retryAt {
		return
	}
	if at = at + time.Duration(l.localHealth(t.zone, now))*t.rec.Data.Check.TTLOf(); at > now || !l.trusted(t.zone, now) {
		return
	}
	if l.isPreserved(t, now) {
		return
	}
	v := l.evidence(t)
	v.Output = fmt.Sprintf("silent for %s", (now - max(t.seen, l.floor)).Round(time.Millisecond))
	if l.reportRemoval(t, now, instance.ReportMissed, v, t.mayBeRemoved()) {
		t.passes = 0
	}
}
