package client

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// patience is how long a try may take until there is an answer; 0 is as long as the caller waits.
func (t *Transport) patience(req *http.Request, more bool) time.Duration {
	if !idempotent(req) || t.TryTimeout < 0 {
		return 0
	}
	most := cmp.Or(t.TryTimeout, tryTimeout)
	if end, ok := req.Context().Deadline(); ok && more {
		return max(min(most, time.Until(end)/2), 1)
	}
	return most
}

// errSlow says that an instance had its time.
var errSlow = errors.New("the instance did not answer in time")

// limit is the time of one try: until its answer begins, or, while its body is sent, until the next part of that is taken.
type limit struct {
	after time.Duration // 0: there is none
	end   func()

	mu    sync.Mutex
	timer *time.Timer
	done  bool
	late  bool
}

func (l *limit) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.after > 0 && !l.done {
		l.timer = time.AfterFunc(l.after, l.fire)
	}
}

func (l *limit) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done {
		l.done, l.late = true, true
		l.end()
	}
}

// more says that a part of the body is taken.
func (l *limit) more() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil && !l.done {
		l.timer.Reset(l.after)
	}
}

// over ends it, and says whether the time was over before.
func (l *limit) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	if l.timer != nil {
		l.timer.Stop()
	}
	return l.late
}

// watch counts what is read of a body as progress.
func (l *limit) watch(body io.ReadCloser) io.ReadCloser {
	if body == nil || body == http.NoBody || l.after == 0 {
		return body
	}
	return &progress{body, l}
}

type progress struct {
	io.ReadCloser
	limit *limit
}

func (p *progress) Read(b []byte) (int, error) {
	p.limit.more()
	return p.ReadCloser.Read(b)
}
