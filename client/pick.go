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

// Choice is an endpoint that was picked. Done must be called once, when the call is over.
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
	Failed          // it answered badly or not at all
	Refused         // it cannot be connected to
	Unknown         // says nothing about the endpoint: the caller gave up, for one
)

// Pick chooses an endpoint, other than those to avoid if there is another. It fails with ErrNoEndpoints if there is none.
func (r *Resolver) Pick(avoid ...string) (*Choice, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.choose(r.candidates(avoid))
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

// candidates are those to choose from: the first of these that is not empty. Not avoided, not ejected, of the zone; of
// any zone; ejected, too; any.
func (r *Resolver) candidates(avoid []string) []*target {
	now := time.Now()
	rest := slices.DeleteFunc(slices.Clone(r.order), func(t *target) bool { return slices.Contains(avoid, t.InstanceID) })
	if len(rest) == 0 {
		return r.order
	}
	fit := slices.DeleteFunc(slices.Clone(rest), func(t *target) bool { return now.Before(t.until) })
	if len(fit) == 0 {
		return rest
	}
	if r.opts.Zone != "" {
		if near := slices.DeleteFunc(slices.Clone(fit), func(t *target) bool { return t.Zone != r.opts.Zone || t.Weight <= 0 }); len(near) > 0 {
			return near
		}
	}
	return fit
}

// choose picks by weight; what has none is chosen only when nothing has any.
func (r *Resolver) choose(from []*target) *target {
	if len(from) == 0 {
		return nil
	}
	total := 0
	for _, t := range from {
		total += max(t.Weight, 0)
	}
	weight := func(t *target) int {
		if total == 0 {
			return 1
		}
		return max(t.Weight, 0)
	}
	sum := 0
	for _, t := range from {
		sum += weight(t)
	}
	if r.opts.Balance == LeastInFlight {
		a, b := draw(from, weight, sum), draw(from, weight, sum)
		if (a.inFlight+1)*weight(b) > (b.inFlight+1)*weight(a) {
			return b
		}
		return a
	}
	var best *target
	for _, t := range from { // smooth weighted round robin, as nginx does it
		w := weight(t)
		if w == 0 {
			continue
		}
		if t.current += w; best == nil || t.current > best.current {
			best = t
		}
	}
	best.current -= sum
	return best
}

func draw(from []*target, weight func(*target) int, sum int) *target {
	n := rand.IntN(sum)
	for _, t := range from {
		if n -= weight(t); n < 0 {
			return t
		}
	}
	return from[len(from)-1]
}
