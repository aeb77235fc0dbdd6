package retry

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Bounds of what is sent again because it failed. What never reached an instance counts for nothing: it loads nobody.
const (
	retryPart    = 0.2 // of requests: when everything fails, the load grows by so much and not by the number of tries
	retryReserve = 10  // retries that a service has at first, and that come back one a second without any requests
	retryMost    = 100 // retries that are saved up for the moment in which an instance dies
	retryBase    = 25 * time.Millisecond
	retryCap     = 250 * time.Millisecond
)

// Budget counts the retries that a service may still have. Its zero value is a full reserve.
type Budget struct {
	mu    sync.Mutex
	spent float64 // retryReserve less what there is
	at    time.Time
}

// Request adds what one request earns.
func (b *Budget) Request() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(b.spent-retryPart, retryReserve-retryMost)
}

// Left says whether there is a retry to take.
func (b *Budget) Left() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	return retryReserve-b.spent >= 1
}

// Take takes one, if there is one.
func (b *Budget) Take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	if retryReserve-b.spent < 1 {
		return false
	}
	b.spent++
	return true
}

// refill gives back the reserve with time. The lock is held.
func (b *Budget) refill() {
	now := time.Now()
	if b.spent > 0 && !b.at.IsZero() {
		b.spent = max(b.spent-now.Sub(b.at).Seconds(), 0)
	}
	b.at = now
}

// Pause is how long the nth retry waits: up to twice as long each time, by chance, so that those who failed together do
// not come back together.
func Pause(n int) time.Duration {
	return rand.N(min(retryBase<<min(n, 10), retryCap)) + 1
}
