package prober

// Self-preservation of zones. isPreserved, asked before a lost instance is reported, counts the losses of its zone (losses.go) and reports too many to machine preservation. Its
// state comes back through the index (preservation); updateProtection sets or ends the protection of single instances by it, and renew reports each second whether it may end.

import (
	"cmp"
	"strings"
	"time"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

const (
	lossesFresh = 50 * time.Millisecond
	lossesAgain = 2 * time.Second

	deniedFor = 30 * time.Second // after an operator has released it, until it is reported again
)

// zone is a service in one zone.
type zone struct {
	key             string // of its preservation
	service         *service
	state           string        // of that, as the index has it
	held            bool          // by an operator
	until           time.Time     // before then nothing is protected: it was released
	tripped         bool          // too many are lost, and that is on its way there
	askedAt         time.Duration // when that was last reported
	denied          time.Duration // until then nothing is protected
	ignore          time.Duration // what was lost before then is dead, and no loss
	counted         time.Duration // when losses were counted
	losses          preservation.Losses
	unansweredSince time.Duration // since when most of what speaks for it gives no answer; 0 is that it does not
}

// protects reports whether nothing may expire.
func (z *zone) protects() bool {
	return z.tripped || z.state == preservation.Protected || z.state == preservation.Recovering
}

// zone is the one of that name, for instances that have none, too.
func (s *service) zone(name string) *zone {
	label := cmp.Or(streams.LabelOf(name), preservation.NoZone)
	z := s.zones[label]
	if z == nil {
		if s.zones == nil {
			s.zones = map[string]*zone{}
		}
		z = &zone{key: s.name + "." + label, service: s}
		s.zones[label] = z
	}
	return z
}

func (l *loop) loadPreservations() {
	there := map[string]bool{}
	for q := (index.Query{Limit: 1000}); ; {
		page := l.Preservations.List(q)
		for _, i := range page.Items {
			l.preservation(&i)
			there[i.Key] = true
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	for _, s := range l.services {
		for _, z := range s.zones {
			if z.state != "" && !there[z.key] {
				l.preservation(&index.Item{Key: z.key})
			}
		}
	}
}

// preservation takes over the state of a zone from the index.
func (l *loop) preservation(item *index.Item) {
	i := strings.LastIndexByte(item.Key, '.')
	if i < 0 {
		return
	}
	s := l.service(item.Key[:i])
	z := s.zone(item.Key[i+1:])
	before := z.protects()
	z.state, z.tripped = item.State, z.tripped && item.State != preservation.Protected
	z.held, z.until = false, time.Time{}
	if d, ok := item.Value.(*preservation.Data); ok {
		z.held, z.until = d.Hold != nil, d.ReleasedUntil
	}
	if before && !z.protects() {
		z.ignore = l.now()
	}
	l.visitZone(z)
}

// visitZone decides again about all instances of a zone.
func (l *loop) visitZone(z *zone) {
	now := l.now()
	for t := range z.service.members {
		if t.zone == z {
			l.decide(t, now)
			l.plan(t, now)
		}
	}
}

// isPreserved reports whether an instance that is lost is not to be taken out, or not yet: its zone is in self-preservation, or
// too many of its service went a moment ago. One that is protected and found becomes suspect, which takes nothing out.
func (l *loop) isPreserved(t *tracked, now time.Duration) bool {
	switch {
	case t.rec.Data.Protected:
		if t.found() {
			return false
		}
		t.retryAt = now + sweepEvery
	case (t.found() || t.state == instance.Suspect) && l.preserves(t, now):
		t.retryAt = now + sweepEvery
	case t.found() && t.service.full(t, now):
		t.retryAt = now + spread(expirySweep)
	default:
		return false
	}
	return true
}

// preserves reports whether the zone of an instance that is lost is in self-preservation, because too many are.
func (l *loop) preserves(t *tracked, now time.Duration) bool {
	z := t.zone
	switch {
	case l.Preservations == nil:
		return false
	case z.protects():
		return true
	case now < z.denied || time.Now().Before(z.until):
		return false
	}
	if z.counted == 0 || now-z.counted > lossesFresh {
		z.losses, z.counted = l.losses(z, now, atOnce), now
	}
	if !z.losses.Exceed() {
		return false
	}
	z.tripped = true
	l.log.Warn("too many instances are lost at once: self-preservation keeps them", "zone", z.key, "lost", z.losses.Expiring, "of", z.losses.Total)
	l.reportZone(z, preservation.ReportLosses, z.losses, now)
	l.visitZone(z)
	return true
}

// updateProtection sets or ends the protection of one instance, as its zone requires. At the end those that are lost lose it a few at a time, and their time runs from then on.
func (l *loop) updateProtection(t *tracked, now time.Duration) bool {
	if l.Preservations == nil {
		return false
	}
	z, lost := t.zone, l.lost(t, now) != nil
	if !t.rec.Data.Protected {
		return lost && z.protects() && (t.found() || t.state == instance.Suspect) && l.report(t, now, instance.ReportProtect, nil)
	}
	switch {
	case !z.protects():
		if lost && t.service.full(t, now) {
			t.retryAt = now + spread(expirySweep)
			return false
		}
		return l.reportRemoval(t, now, instance.ReportUnprotect, nil, lost)
	case !lost && (z.state == preservation.Recovering && !z.tripped || t.critical()): // it speaks for itself
	default:
		return false
	}
	return l.report(t, now, instance.ReportUnprotect, nil)
}

// renew reports how protected zones are now: enough instances may be well again, which was observed, so that a node that distrusts itself reports it, too; or too few after all.
// What changes nothing is not reported: a hold has no deadline, and a protection that began by itself ends by the deadline that was set then.
func (l *loop) renew(s *service, now time.Duration) {
	if l.Preservations == nil || !l.owned.Has(streams.Partition(instance.Machine.Name, s.name)) || !l.NC.IsConnected() {
		return
	}
	for _, z := range s.zones {
		if !z.protects() || z.held || now-z.askedAt < lossesAgain {
			continue
		}
		if z.state == preservation.Protected {
			if n := l.losses(z, now, proven); !n.Exceed() {
				l.reportZone(z, preservation.ReportRenewals, n, now)
			}
			continue
		}
		if !l.trusted(z, now) {
			continue
		}
		switch n := l.losses(z, now, all); {
		case n.Exceed():
			z.losses = n
			l.reportZone(z, preservation.ReportLosses, n, now)
		case z.tripped:
			z.tripped = false
			l.visitZone(z)
		}
	}
}

// reportZone sends a report of a zone.
func (l *loop) reportZone(z *zone, input string, n preservation.Losses, now time.Duration) {
	if body, ok := l.reportBody(n); ok {
		z.askedAt = now
		l.enqueue(ask{z: z, cmd: publish.Command{Machine: preservation.Machine.Name, Key: z.key, Name: input, Actor: actor, Body: body}})
	}
}

// onZoneAnswer: when losses do not protect a zone, an operator has released it.
func (l *loop) onZoneAnswer(a *answer, now time.Duration) {
	z := a.z
	switch {
	case a.err != nil:
	case a.answer.Outcome != machines.Applied && a.answer.Outcome != machines.Unchanged:
		// Refused as that of an earlier claim, or given up: nothing was decided about the zone.
	case a.cmd.Name == preservation.ReportLosses && a.answer.State != preservation.Protected:
		z.tripped, z.denied, z.ignore = false, now+deniedFor, now
		l.visitZone(z)
	}
}
