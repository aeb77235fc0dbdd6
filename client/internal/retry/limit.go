package retry

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// limit is the time of one try: until its answer begins, or, while its body is sent, until the next part of that is taken.
type limit struct {
	after time.Duration // 0: there is none
	end   func()

	mu    sync.Mutex
	timer *time.Timer
	done  bool
	late  bool
}

// NewLimit is the limit of a try that has not begun; 0 is none. end is called when the time is over.
func NewLimit(after time.Duration, end func()) *limit { return &limit{after: after, end: end} }

// Begin starts the clock.
func (l *limit) Begin() {
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

// Over ends it, and says whether the time was over before.
func (l *limit) Over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	if l.timer != nil {
		l.timer.Stop()
	}
	return l.late
}

// Watch counts what is read of a body as progress.
func (l *limit) Watch(body io.ReadCloser) io.ReadCloser {
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
