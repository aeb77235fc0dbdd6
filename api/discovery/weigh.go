package discovery

import (
	"math"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

func weight(d *instance.Data, state string, since, now time.Time) int {
	w := d.Weight
	if d.Pinned != nil {
		w = *d.Pinned
	}
	switch state {
	case instance.Healthy:
		return w
	case instance.Suspect:
		return (w + 1) / 2
	case instance.Warming:
		window, _ := time.ParseDuration(d.Policy.Warmup)
		part := 1.0
		if window > 0 {
			part = math.Max(0.1, math.Min(1, float64(now.Sub(since))/float64(window)))
		}
		return int(math.Ceil(float64(w) * part))
	}
	return 0
}

func routable(state string, d *instance.Data, now time.Time) bool {
	if m := d.Maintenance; m != nil && (m.Until.IsZero() || now.Before(m.Until)) {
		return false
	}
	return state == instance.Healthy || state == instance.Warming || state == instance.Suspect
}
