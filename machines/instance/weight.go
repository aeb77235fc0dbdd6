package instance

import (
	"math"
	"time"
)

// Routable reports whether traffic may go to an instance: it is warming, healthy or suspect, and not in maintenance.
func Routable(state string, d *Known, now time.Time) bool {
	switch state {
	case Warming, Healthy, Suspect:
		return !InMaintenance(d, now)
	}
	return false
}

// InMaintenance reports whether an operator took it out; a maintenance that is over does not count, even when nobody
// has said so yet.
func InMaintenance(d *Known, now time.Time) bool {
	m := d.Maintenance
	return m != nil && (m.Until.IsZero() || now.Before(m.Until))
}

// Weight is an instance's part of the traffic now: the administrator's, else its own word, else as registered; grown so
// far as the warm-up has come, and halved while it is suspect. It is 0 when it is not [Routable]; what has any weight
// keeps at least 1. since is when the state was entered.
func Weight(d *Known, state string, since, now time.Time) int {
	if !Routable(state, d, now) {
		return 0
	}
	whole := d.Weight
	switch {
	case d.Pinned != nil:
		whole = *d.Pinned
	case d.Reported != nil:
		whole = *d.Reported
	}
	if whole <= 0 {
		return 0
	}
	part := 1.0
	switch {
	case !d.WarmSince.IsZero():
		part = ramp(d, d.WarmSince, now)
	case state == Warming:
		part = ramp(d, since, now)
	}
	if state == Suspect {
		part /= 2
	}
	return max(int(math.Round(float64(whole)*part)), 1)
}

// ramp is Envoy's slow start: max(10 %, (t/window)^(1/aggression)).
func ramp(d *Known, since, now time.Time) float64 {
	window := d.Warmup()
	if window <= 0 {
		return 1
	}
	t := float64(max(now.Sub(since), 0)) / float64(window)
	return min(max(math.Pow(t, 1/d.Aggression()), 0.1), 1)
}
