package proxy

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// leftOut is for how long a backend that took no connection gets no requests while another one does.
const leftOut = time.Second

// unreachable is a connection that a backend did not take: nothing of a request was sent.
type unreachable struct{ error }

func (u *unreachable) Unwrap() error { return u.error }

// backend is a server of a site, in all tables that it is in.
type backend struct {
	place
	ownHost  atomic.Bool
	inFlight atomic.Int64
	sick     atomic.Pointer[string] // what the checks say; nil is healthy
	refused  atomic.Pointer[refusal]

	mu    sync.Mutex
	count Count                  // of what does not wait any longer
	waits map[*exchange]struct{} // has no answer yet
	open  map[*exchange]func()   // closes what was upgraded
	timer *time.Timer            // when it has been drained for long enough
	ended bool                   // it has
}

// refusal is the last connection that was not taken.
type refusal struct {
	until time.Time
	why   string
}

func (b *backend) unreached(now time.Time) bool {
	r := b.refused.Load()
	return r != nil && now.Before(r.until)
}

// asked is the host that it gets requests with of one that was asked for.
func (b *backend) asked(host string) string {
	if b.ownHost.Load() {
		return strings.TrimSuffix(b.address, ":80")
	}
	return host
}

// failed takes note of a request that went wrong, and reports whether it may go to another backend.
func (b *backend) failed(e *exchange, err error) bool {
	var u *unreachable
	if !errors.As(err, &u) {
		return false
	}
	b.refused.Store(&refusal{time.Now().Add(leftOut), u.Error()})
	b.answers(e, http.StatusBadGateway)
	b.finished(http.StatusBadGateway)
	return true
}

// upgraded takes note of a connection that outlives its request, and of how to close it.
func (b *backend) upgraded(e *exchange, closes func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		closes()
		return
	}
	b.open[e] = closes
}

// asks takes note of a request that has been sent, until it is answered.
func (b *backend) asks(e *exchange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.given = time.Now()
	b.waits[e], e.waits = struct{}{}, true
}

// answers counts a request that waits, when its answer begins or when there will be none: a stream counts as soon as any other answer does. One whose client went away says something only
// when it should have been answered by then.
func (b *backend) answers(e *exchange, status int) {
	if !e.waits { // it was counted when its answer began
		return
	}
	e.waits = false
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waits, e)
	late := e.late(time.Now())
	if late {
		b.count.Hung++
	}
	if late || status != gone {
		b.count.Asked++
	}
}

// finished counts how a request has ended.
func (b *backend) finished(status int) {
	if status < http.StatusInternalServerError {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count.Failures++
}

// traffic is the count, with those that are late already.
func (b *backend) traffic(now time.Time) Count {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.count
	for e := range b.waits {
		if e.late(now) {
			n.Asked++
			n.Hung++
		}
	}
	return n
}

// release is for each request that was taken.
func (b *backend) release(e *exchange) {
	if e.cancel != nil { // it may have been upgraded
		b.mu.Lock()
		delete(b.open, e)
		b.mu.Unlock()
	}
	b.inFlight.Add(-1)
}

// stay ends a drain. ended says that there is no more time for what is upgraded.
func (b *backend) stay(ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
		b.timer, b.ended = nil, ended
	}
}

// leave begins a drain, unless there is one.
func (b *backend) leave(within time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		return
	}
	var mine *time.Timer
	mine = time.AfterFunc(within, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.timer == mine { // else it has come back
			b.end()
		}
	})
	b.timer = mine
}

// end closes what is upgraded, and what is going to be. The caller holds the lock.
func (b *backend) end() {
	b.ended = true
	for _, closes := range b.open {
		closes()
	}
}

func (b *backend) status(weight int) Status {
	b.mu.Lock()
	upgraded := len(b.open)
	b.mu.Unlock()
	s := Status{Host: b.host, Address: b.address, Weight: weight, Healthy: true, InFlight: int(b.inFlight.Load()), Upgraded: upgraded}
	if r := b.refused.Load(); r != nil && time.Now().Before(r.until) {
		s.Healthy, s.Problem = false, r.why
	}
	if sick := b.sick.Load(); sick != nil {
		s.Healthy, s.Problem = false, *sick
	}
	return s
}
