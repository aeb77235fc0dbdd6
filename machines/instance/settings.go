package instance

import (
	"cmp"
	"time"
)

// What a check and a policy say when they do not say otherwise.
const (
	DefaultInterval      = 5 * time.Second
	DefaultTimeout       = 2 * time.Second
	DefaultTTL           = 15 * time.Second
	DefaultRise          = 2
	DefaultFall          = 3
	DefaultDrain         = 10 * time.Second
	DefaultCriticalAfter = 30 * time.Minute
	DefaultFlapHigh      = 30
	DefaultFlapLow       = 20

	StartupInterval = time.Second // between the probes of an instance that is not known yet
)

// duration reads a text that was checked when it was taken.
func duration(text string, otherwise time.Duration) time.Duration {
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return otherwise
	}
	return d
}

// Kind is the type of the check; none by default.
func (c *Check) Kind() string { return cmp.Or(c.Type, CheckNone) }

// IntervalOf is the time between two probes of an instance that does not change.
func (c *Check) IntervalOf() time.Duration { return duration(c.Interval, DefaultInterval) }

// TimeoutOf is the time that one probe may take.
func (c *Check) TimeoutOf() time.Duration { return duration(c.Timeout, DefaultTimeout) }

// TTLOf is how long an instance that sends heartbeats may be silent.
func (c *Check) TTLOf() time.Duration { return duration(c.TTL, DefaultTTL) }

// GraceOf is how long it may be suspect beyond that; half the TTL by default.
func (c *Check) GraceOf() time.Duration { return duration(c.Grace, c.TTLOf()/2) }

// ObserversOf is how many nodes probe it.
func (c *Check) ObserversOf() int { return max(c.Observers, 1) }

// AgreeOf is how many of the observers must see it fail; the majority by default.
func (c *Check) AgreeOf() int {
	if c.Agree > 0 {
		return min(c.Agree, c.ObserversOf())
	}
	return c.ObserversOf()/2 + 1
}

// RiseOf is how many of the observers must see an unhealthy instance pass: so many that those left cannot agree that it
// fails.
func (c *Check) RiseOf() int { return c.ObserversOf() - c.AgreeOf() + 1 }

// Every is the time until the next probe: a second at most until it is known, half the interval while it is suspect or
// the last result speaks against its state, twice the interval while it is unhealthy and stays so.
func (c *Check) Every(state string, changing bool) time.Duration {
	interval := c.IntervalOf()
	switch {
	case state == Unknown:
		return min(StartupInterval, interval)
	case state == Suspect || changing:
		return interval / 2
	case state == Unhealthy:
		return interval * 2
	}
	return interval
}

// MethodOf is the method of an HTTP probe.
func (c *Check) MethodOf() string { return cmp.Or(c.Method, "GET") }

// PathOf is the path and query of an HTTP probe.
func (c *Check) PathOf() string { return cmp.Or(c.Path, "/") }

// Rise is how many passes in a row make it healthy: 2 by default, and 1 for heartbeats, which it sends itself.
func (t *Terms) Rise() int {
	if t.Check.Kind() == CheckTTL {
		return cmp.Or(t.Policy.Rise, 1)
	}
	return cmp.Or(t.Policy.Rise, DefaultRise)
}

// Fall is how many failures in a row make it unhealthy.
func (t *Terms) Fall() int { return cmp.Or(t.Policy.Fall, DefaultFall) }

// Warmup is the time over which its weight grows; 0 is none.
func (t *Terms) Warmup() time.Duration { return duration(t.Policy.Warmup, 0) }

// Aggression is the form of that growth; 1 is linear, more is faster at first.
func (t *Terms) Aggression() float64 { return cmp.Or(t.Policy.Aggression, 1) }

// SuspectMin is the shortest window of a suspicion.
func (t *Terms) SuspectMin() time.Duration {
	return duration(t.Policy.SuspectMin, 2*t.Check.IntervalOf())
}

// SuspectMax is the longest one, and never less than the shortest.
func (t *Terms) SuspectMax() time.Duration {
	return max(duration(t.Policy.SuspectMax, 6*t.SuspectMin()), t.SuspectMin())
}

// DrainTime is the hard deadline of a graceful shutdown.
func (t *Terms) DrainTime() time.Duration { return duration(t.Policy.Drain, DefaultDrain) }

// CriticalAfter is how long it may be unhealthy; 0 is for ever. Instances that send heartbeats and those that are not
// checked are never deregistered for that, unless their policy says so.
func (t *Terms) CriticalAfter() time.Duration {
	switch t.Check.Kind() {
	case CheckTTL, CheckNone:
		return duration(t.Policy.DeregisterCriticalAfter, 0)
	}
	return duration(t.Policy.DeregisterCriticalAfter, DefaultCriticalAfter)
}

// FlapHigh is the score in percent from which it is held down.
func (t *Terms) FlapHigh() float64 { return float64(cmp.Or(t.Policy.FlapHigh, DefaultFlapHigh)) }

// FlapLow is the score in percent below which it is calm.
func (t *Terms) FlapLow() float64 { return float64(cmp.Or(t.Policy.FlapLow, DefaultFlapLow)) }
