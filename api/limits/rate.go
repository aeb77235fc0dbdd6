package limits

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Rate bounds how often a client may ask: so many times a second, and so many at once after it was silent. It is safe for
// concurrent use; nil allows everything.
type Rate struct {
	name  string
	limit rate.Limit
	burst int

	mu    sync.Mutex
	of    map[string]*rate.Limiter
	sweep int // clients at which those are forgotten that may ask as often as one that never did

	refused atomic.Uint64
}

const sweepFrom = 1024

// NewRate allows a client so many requests a second, after a silence burst at once, by default as many as in a second.
// A rate of 0 is no limit: then it is nil.
func NewRate(name string, perSecond, burst int) *Rate {
	if perSecond <= 0 {
		return nil
	}
	if burst <= 0 {
		burst = perSecond
	}
	return &Rate{name: name, limit: rate.Limit(perSecond), burst: burst, of: map[string]*rate.Limiter{}, sweep: sweepFrom}
}

// Allow takes one request of a client, or says how long to wait for the next one.
func (r *Rate) Allow(client string) (wait time.Duration, ok bool) {
	if r == nil {
		return 0, true
	}
	one := r.limiter(client).Reserve()
	if wait = one.Delay(); wait == 0 {
		return 0, true
	}
	one.Cancel()
	r.refused.Add(1)
	return wait, false
}

func (r *Rate) limiter(client string) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[client]
	if one != nil {
		return one
	}
	if len(r.of) >= r.sweep {
		for c, l := range r.of {
			if l.Tokens() >= float64(r.burst) {
				delete(r.of, c)
			}
		}
		r.sweep = max(sweepFrom, 2*len(r.of))
	}
	one = rate.NewLimiter(r.limit, r.burst)
	r.of[client] = one
	return one
}
