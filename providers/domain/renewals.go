package domain

import (
	"sync"
	"time"
)

// How long a certificate authority is left alone about one name: after failures, doubled by each in a row, and after a success.
const (
	leastWait    = 10 * time.Minute
	mostWait     = 12 * time.Hour
	afterSuccess = time.Hour
)

// renewals says when the next one of a name may begin: orders that cannot succeed use up what a certificate authority grants to all names together. The zero value knows of none. It is safe for concurrent use.
type renewals struct {
	mu sync.Mutex
	of map[string]*renewal
}

// renewal is what this process knows of those of a name.
type renewal struct {
	running  bool
	failures int       // in a row
	next     time.Time // not before then
	trouble  string    // of the last one
	looked   time.Time // when that was asked for last
}

// begin reports whether a renewal may begin, which has then: it ends by failed or succeeded.
func (rs *renewals) begin(host string, now time.Time) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.get(host)
	if r.running || now.Before(r.next) {
		return false
	}
	r.running = true
	return true
}

// failed ends a renewal; atLeast is the wait that the certificate authority has asked for.
func (rs *renewals) failed(host, trouble string, atLeast time.Duration, now time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.get(host)
	wait := leastWait
	for range r.failures {
		wait = min(2*wait, mostWait)
	}
	r.running, r.trouble, r.next = false, trouble, now.Add(max(wait, atLeast))
	if wait < mostWait {
		r.failures++
	}
}

// succeeded ends a renewal by a certificate with that life. The next one waits an hour even if it seems to be due before, as by a clock that is wrong; one that lives for hours only waits a third of its life.
func (rs *renewals) succeeded(host string, life time.Duration, now time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	*rs.get(host) = renewal{next: now.Add(min(afterSuccess, life/3))}
}

// trouble is why the last renewal of a name has failed; empty if none has.
func (rs *renewals) trouble(host string, now time.Time) string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.of[host]; r != nil {
		r.looked = now
		return r.trouble
	}
	return ""
}

// unlooked is after how long a name is no longer looked at by this process, but by another one that may have renewed its certificate. A name in trouble is looked at much more often.
const unlooked = 15 * time.Minute

// troubled is how many names the last renewal of has failed, of those that this process looks at.
func (rs *renewals) troubled(now time.Time) (n int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.of {
		if r.trouble != "" && now.Sub(r.looked) < unlooked {
			n++
		}
	}
	return n
}

// forget is for a name that is not served any more: it may come again as another's.
func (rs *renewals) forget(host string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.of[host]; r != nil && r.running {
		*r = renewal{running: true}
		return
	}
	delete(rs.of, host)
}

// get is the entry of a name. The caller holds the lock.
func (rs *renewals) get(host string) *renewal {
	if rs.of == nil {
		rs.of = map[string]*renewal{}
	}
	r := rs.of[host]
	if r == nil {
		r = &renewal{}
		rs.of[host] = r
	}
	return r
}
