package limits

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Rate bounds how often a client may ask: so many times a second, and so many at once after it was silent. It is safe for
// concurrent use; nil allows everything.
type Rate struct {
	name string
	all  Pace
	own  map[string]Pace

	mu    sync.Mutex
	of    map[string]*rate.Limiter
	sweep int // clients at which those are forgotten that may ask as often as one that never did

	refused atomic.Uint64
}

// Pace is how often one client may ask: so many times a second, which 0 does not bound, and so many at once after a silence, where 0 is
// as many as in a second.
type Pace struct{ PerSecond, Burst int }

const sweepFrom = 1024

// NewRate allows every client this pace, but for those that have one of their own. Where nobody is bounded it is nil.
func NewRate(name string, all Pace, own map[string]Pace) *Rate {
	if all.PerSecond <= 0 && len(own) == 0 {
		return nil
	}
	return &Rate{name: name, all: all, own: own, of: map[string]*rate.Limiter{}, sweep: sweepFrom}
}

// Allow takes one request of a client, or says how long to wait for the next one.
func (r *Rate) Allow(client string) (wait time.Duration, ok bool) {
	if r == nil {
		return 0, true
	}
	pace, own := r.own[client]
	if !own {
		pace = r.all
	}
	if pace.PerSecond <= 0 {
		return 0, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	limiter, now := r.limiter(client, pace), time.Now() // with the lock held: a limiter that is told an older time than before goes back to it
	if limiter.AllowN(now, 1) {
		return 0, true
	}
	r.refused.Add(1)
	return time.Duration((1 - limiter.TokensAt(now)) / float64(limiter.Limit()) * float64(time.Second)), false
}

// limiter is that of a client. It is called with the lock held.
func (r *Rate) limiter(client string, pace Pace) *rate.Limiter {
	one := r.of[client]
	if one != nil {
		return one
	}
	if len(r.of) >= r.sweep {
		for c, l := range r.of {
			if l.Tokens() >= float64(l.Burst()) {
				delete(r.of, c)
			}
		}
		r.sweep = max(sweepFrom, 2*len(r.of))
	}
	one = rate.NewLimiter(rate.Limit(pace.PerSecond), cmp.Or(pace.Burst, pace.PerSecond))
	r.of[client] = one
	return one
}
