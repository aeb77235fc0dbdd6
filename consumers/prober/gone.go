package prober

import (
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// How long an instance that is neither heard nor probed is waited for.
const (
	goneUnprobed = 15 * time.Second
	goneChained  = 5 * time.Minute // an alias of an alias
)

// reportGone confirms that an instance which was unhealthy for too long shows no life, as this node has observed itself: before it looked after it, it may have lived.
func (l *loop) reportGone(t *tracked, now time.Duration) bool {
	if t.state != instance.Unhealthy || t.rec.Data.Overdue.IsZero() || t.rec.Data.Protected || !l.trusted(t.zone, now) || l.goneAt(t) > now {
		return false
	}
	v := l.failure(t)
	v.Consecutive = max(t.fails, 1)
	return l.report(t, now, instance.ReportGone, v)
}

// goneAt is when one that is silent, or whose checks fail, counts as gone; never where the next results decide that. Distrust of this node in itself delays it.
func (l *loop) goneAt(t *tracked) time.Duration {
	d := &t.rec.Data
	switch {
	case t.passes > 0 && t.kind != instance.CheckTTL:
		return never
	case t.kind == instance.CheckAlias: // it fails at once, while what it follows was not looked at yet
		return l.watched(t) + l.followed(t)
	case t.fails >= d.Fall() && !hasObservers(t):
		return 0
	}
	switch {
	case t.kind == instance.CheckTTL:
		return max(t.seen, l.floor) + time.Duration(l.localHealth(t.zone, l.now())+1)*d.Check.TTLOf() + d.Check.GraceOf()
	case hasObservers(t) && l.agreed(t):
		return 0
	case t.kind == instance.CheckNone:
		return l.watched(t) + goneUnprobed
	}
	return never
}

// watched is since when this node looks at how an instance is now.
func (l *loop) watched(t *tracked) time.Duration {
	return max(l.gained[t.partition()], l.floor, t.entered)
}

// followed is how long what an alias follows may need to show that it lives.
func (l *loop) followed(t *tracked) time.Duration {
	item, _ := l.Instances.Get(t.follows)
	rec, ok := item.Value.(*instance.Record)
	if !ok || item.State == instance.Deregistered {
		return goneUnprobed
	}
	switch c := &rec.Data.Check; c.Kind() {
	case instance.CheckTTL:
		return goneUnprobed + c.TTLOf() + c.GraceOf()
	case instance.CheckAlias:
		return goneChained
	case instance.CheckNone:
		return goneUnprobed
	default:
		return goneUnprobed + c.Every(instance.Unhealthy, false) + time.Duration(rec.Data.Rise())*(c.IntervalOf()+c.TimeoutOf())
	}
}

// agreed reports whether enough of several observers see it fall now.
func (l *loop) agreed(t *tracked) bool {
	c := t.rec.Data.Check
	c.Observers = min(c.ObserversOf(), max(len(l.nodes), 1))
	n := 0
	for _, v := range l.opinions(t, l.now()) {
		if !v.OK && v.Consecutive >= t.rec.Data.Fall() {
			n++
		}
	}
	return n >= c.AgreeOf()
}
