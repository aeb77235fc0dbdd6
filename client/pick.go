package client

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// ErrNoEndpoints says that a service has no instance that may be called.
var ErrNoEndpoints = errors.New("no instance may be called")

// Ejection of endpoints that fail, as Envoy's outlier detection does it.
const (
	ejectAfter = 5 // failures in a row; one that refuses the connection at once
	ejectFor   = 30 * time.Second
	ejectCap   = 300 * time.Second
	ejectPart  = 2 // at most one of so many
)

// target is an endpoint with what is known of calls to it. The resolver's lock guards it.
type target struct {
	Endpoint
	tier     int // of the choice under way
	current  int // of smooth weighted round robin
	inFlight int
	failures int // in a row
	ejected  int // how often
	until    time.Time
	conns    *http.Transport // to it alone: with it they go, or a successor at the same address would be called over dead ones
	gone     bool
}

// over ends the connections of a target that has gone when nobody uses them any more. The resolver's lock is held.
func (t *target) over() {
	if t.gone && t.inFlight == 0 && t.conns != nil {
		t.conns.CloseIdleConnections()
	}
}

// via is where a call to the choice goes: connections of its own, as base makes them.
func (c *Choice) via(base *http.Transport) *http.Transport {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.t.conns == nil {
		c.t.conns = base.Clone()
	}
	return c.t.conns
}

// Choice is an endpoint that was picked. Done must be called once, when the call is over. What fails is left out for 30 s, longer
// each time and 5 min at most, as long as half of the instances are left.
type Choice struct {
	Endpoint
	r *Resolver
	t *target
}

// Outcome is how a call went.
type Outcome int

// Outcomes.
const (
	OK      Outcome = iota
	Failed          // it answered badly or not at all; five in a row leave it out for a while
	Refused         // it cannot be connected to; one leaves it out
	Unknown         // says nothing about the endpoint: the caller gave up, for one
)

// Pick chooses an endpoint, other than those to avoid (ids) if there is another. It fails with ErrNoEndpoints if there is none.
// It never waits: what is known counts, however stale it is.
func (r *Resolver) Pick(avoid ...string) (*Choice, error) {
	return r.PickFrom(nil, avoid...)
}

// PickFrom is Pick from those only that usable accepts; nil accepts all. It is called under a lock and must not block.
func (r *Resolver) PickFrom(usable func(instanceID string) bool, avoid ...string) (*Choice, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.choose(usable, avoid)
	if t == nil {
		return nil, ErrNoEndpoints
	}
	t.inFlight++
	return &Choice{Endpoint: t.Endpoint, r: r, t: t}, nil
}

// Done says that the call is over, and how it went.
func (c *Choice) Done(o Outcome) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.t.inFlight--
	c.t.over()
	switch o {
	case OK:
		c.t.failures = 0
	case Failed, Refused:
		if c.t.failures++; o == Refused || c.t.failures >= ejectAfter {
			c.r.eject(c.t, time.Now())
		}
	case Unknown:
	}
}

// eject leaves a target out for a while, the longer the more often it was, unless half are out already.
func (r *Resolver) eject(t *target, now time.Time) {
	if now.Before(t.until) {
		return
	}
	out := 1
	for _, other := range r.order {
		if now.Before(other.until) {
			out++
		}
	}
	if out*ejectPart > len(r.order) {
		return
	}
	if now.Sub(t.until) > ejectCap {
		t.ejected = 0 // that was long ago
	}
	t.ejected++
	t.failures = 0
	t.until = now.Add(min(time.Duration(t.ejected)*ejectFor, ejectCap))
}

// Tiers of choice: those of the best one that is not empty are chosen from.
const (
	inZone   = iota // neither avoided nor ejected, of the zone
	anywhere        // neither avoided nor ejected
	ejected         // not avoided
	avoided
	unusable
)

func (r *Resolver) tier(t *target, now time.Time, usable func(string) bool, avoid []string) int {
	switch {
	case usable != nil && !usable(t.InstanceID):
		return unusable
	case len(avoid) > 0 && slices.Contains(avoid, t.InstanceID):
		return avoided
	case now.Before(t.until):
		return ejected
	case r.opts.Zone != "" && t.Zone == r.opts.Zone && t.Weight > 0:
		return inZone
	}
	return anywhere
}

// choose picks by weight among the best; what has no weight is chosen only when nothing of them has any.
func (r *Resolver) choose(usable func(string) bool, avoid []string) *target {
	now, best, sum, n := time.Now(), unusable, 0, 0
	for _, t := range r.order {
		t.tier = r.tier(t, now, usable, avoid)
		if t.tier < best {
			best, sum, n = t.tier, 0, 0
		}
		if t.tier == best {
			sum, n = sum+max(t.Weight, 0), n+1
		}
	}
	if best == unusable {
		return nil
	}
	c := among{all: r.order, tier: best, sum: sum}
	if sum == 0 {
		c.equal, c.sum = true, n
	}
	if r.opts.Balance == LeastInFlight {
		a, b := c.draw(), c.draw()
		if (a.inFlight+1)*c.weight(b) > (b.inFlight+1)*c.weight(a) {
			return b
		}
		return a
	}
	return c.turn()
}

// among are the targets of one tier.
type among struct {
	all   []*target
	tier  int
	sum   int  // of their weights
	equal bool // none has any
}

// weight is 0 for those of other tiers.
func (c *among) weight(t *target) int {
	switch {
	case t.tier != c.tier:
		return 0
	case c.equal:
		return 1
	}
	return max(t.Weight, 0)
}

// turn is smooth weighted round robin, as nginx does it.
func (c *among) turn() *target {
	var best *target
	for _, t := range c.all {
		w := c.weight(t)
		if w == 0 {
			continue
		}
		if t.current += w; best == nil || t.current > best.current {
			best = t
		}
	}
	best.current -= c.sum
	return best
}

// draw takes one by chance.
func (c *among) draw() *target {
	n := rand.IntN(c.sum)
	var last *target
	for _, t := range c.all {
		w := c.weight(t)
		if w == 0 {
			continue
		}
		if last = t; n < w {
			break
		}
		n -= w
	}
	return last
}
