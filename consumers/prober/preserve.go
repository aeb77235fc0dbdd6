package prober

import (
	"strings"
	"time"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/streams"
)

const (
	leastWindow  = 30 * time.Second
	expirySweep  = 5 * time.Second
	leastExpired = 2 // of a service in a sweep, however small it is: fewer than what protects it
	lossesFresh  = 50 * time.Millisecond
	lossesAgain  = 2 * time.Second

	renewalsAgain = 30 * time.Second // when they changed nothing
	deniedFor     = 30 * time.Second // an operator has released it: ask again then
)

// zone is how a service stands in one.
type zone struct {
	key     string // of its preservation
	service *service
	state   string        // of that, as the index has it
	tripped bool          // too many are silent, and that is on its way there
	askedAt time.Duration // when that was said last
	denied  time.Duration // until then nothing is protected
	ignore  time.Duration // what fell silent before then is dead, and no loss
	counted time.Duration // when losses were counted
	losses  preservation.Losses
}

// protects reports whether nothing may expire.
func (z *zone) protects() bool {
	return z.tripped || z.state == preservation.Protected || z.state == preservation.Recovering
}

// zone is the one of that name, for instances that have none, too.
func (s *service) zone(name string) *zone {
	label := zoneLabel(name)
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

// zoneLabel makes a name that a key may hold.
func zoneLabel(name string) string {
	if streams.CheckLabel(name) == nil {
		return name
	}
	label := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-")
	if streams.CheckLabel(label) != nil {
		return preservation.NoZone
	}
	return label
}

func (l *loop) loadPreservations() {
	there := map[string]bool{}
	for q := (kv.Query{Limit: 1000}); ; {
		page := l.Preservations.List(q)
		for _, i := range page.Items {
			l.preservation(i.Key, i.State)
			there[i.Key] = true
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	for _, s := range l.services {
		for _, z := range s.zones {
			if z.state != "" && !there[z.key] {
				l.preservation(z.key, "")
			}
		}
	}
}

// preservation is the news of one.
func (l *loop) preservation(key, state string) {
	i := strings.LastIndexByte(key, '.')
	if i < 0 {
		return
	}
	s := l.service(key[:i])
	z := s.zone(key[i+1:])
	before := z.protects()
	z.state, z.tripped = state, z.tripped && state != preservation.Protected
	if before && !z.protects() {
		z.ignore = l.now()
	}
	l.visitZone(z)
}

// visitZone decides anew for all instances of one.
func (l *loop) visitZone(z *zone) {
	now := l.now()
	for t := range z.service.members {
		if t.zone == z {
			l.decide(t, now)
			l.plan(t, now)
		}
	}
}

// mayExpire counts those that do.
func (s *service) mayExpire(now time.Duration) bool {
	if s.sweepAt == 0 || now-s.sweepAt > expirySweep {
		s.sweepAt, s.expired = now, 0
	}
	if s.expired >= max(leastExpired, int(preservation.DefaultLimit*float64(len(s.members)))) {
		return false
	}
	s.expired++
	return true
}

// preserves reports whether an instance that is silent is not to expire, because too many are.
func (l *loop) preserves(t *tracked, now time.Duration) bool {
	z := t.zone
	switch {
	case l.Preservations == nil:
		return false
	case z.protects():
		return true
	case now < z.denied:
		return false
	}
	if z.counted == 0 || now-z.counted > lossesFresh {
		z.losses, z.counted = l.lost(z, now, true), now
	}
	if !z.losses.Exceed() {
		return false
	}
	z.tripped = true
	l.log.Warn("too many instances fall silent at once: none of them expires", "zone", z.key, "silent", z.losses.Expiring, "of", z.losses.Total)
	l.tell(z, preservation.ReportLosses, z.losses, now)
	l.visitZone(z)
	return true
}

// lost counts who should be heard in a zone, and who is silent: since the window began, or at all.
func (l *loop) lost(z *zone, now time.Duration, recently bool) preservation.Losses {
	window := leastWindow
	for t := range z.service.members {
		if c := &t.rec.Data.Check; t.zone == z && t.kind == instance.CheckTTL {
			window = max(window, c.TTLOf()+c.GraceOf())
		}
	}
	n := preservation.Losses{Window: window.String(), Limit: preservation.DefaultLimit}
	for t := range z.service.members {
		if t.zone != z || t.kind != instance.CheckTTL || !t.owned {
			continue
		}
		switch t.state {
		case instance.Warming, instance.Healthy, instance.Suspect:
		case instance.Unhealthy:
			if t.passes > 0 || t.fails > 0 { // it speaks for itself
				continue
			}
		default:
			continue
		}
		since := max(t.seen, l.floor) + t.rec.Data.Check.TTLOf()
		silent := since <= now
		if silent && recently && (since < now-window || since < z.ignore) || t.state == instance.Unhealthy && since < now-window {
			continue // it is not waited for any more
		}
		n.Total++
		if silent {
			n.Expiring++
		}
	}
	return n
}

// shielded sets and takes away the protection of one instance, as its zone has it.
func (l *loop) shielded(t *tracked, now time.Duration) bool {
	if l.Preservations == nil {
		return false
	}
	z := t.zone
	silent := t.kind == instance.CheckTTL && max(t.seen, l.floor)+t.rec.Data.Check.TTLOf() <= now
	switch {
	case t.rec.Data.Protected && (!z.protects() || z.state == preservation.Recovering && !z.tripped && !silent):
		return l.ask(t, now, instance.ReportUnprotect, nil)
	case !t.rec.Data.Protected && z.protects() && silent && (t.found() || t.state == instance.Suspect):
		return l.ask(t, now, instance.ReportProtect, nil)
	}
	return false
}

// renew looks at the zones that are protected: enough may be heard again, or too few after all.
func (l *loop) renew(s *service, now time.Duration) {
	if l.Preservations == nil || !l.owned.Has(streams.Partition(instance.Machine.Name, s.name)) {
		return
	}
	for _, z := range s.zones {
		if !z.protects() || now-z.askedAt < lossesAgain || !l.trusted(now) {
			continue
		}
		n := l.lost(z, now, false)
		switch {
		case z.tripped:
			l.tell(z, preservation.ReportLosses, z.losses, now)
		case z.state == preservation.Protected && !n.Exceed():
			l.tell(z, preservation.ReportRenewals, n, now)
		case z.state == preservation.Recovering && n.Exceed():
			l.tell(z, preservation.ReportLosses, n, now)
		}
	}
}

// tell sends a report of a zone.
func (l *loop) tell(z *zone, input string, n preservation.Losses, now time.Duration) {
	if body, ok := l.report(n); ok {
		z.askedAt = now
		l.enqueue(ask{z: z, cmd: streams.Command{Machine: preservation.Machine.Name, Key: z.key, Name: input, Actor: actor, Body: body}})
	}
}

// zoneAnswered: when losses do not protect it, an operator has said so; when renewals change nothing, one holds it.
func (l *loop) zoneAnswered(a *answer, now time.Duration) {
	z := a.z
	switch {
	case a.err != nil:
	case a.cmd.Name == preservation.ReportRenewals && a.answer.Outcome != machines.Applied:
		z.askedAt = now + renewalsAgain
	case a.cmd.Name == preservation.ReportLosses && a.answer.State != preservation.Protected:
		z.tripped, z.denied, z.ignore = false, now+deniedFor, now
		l.visitZone(z)
	}
}
