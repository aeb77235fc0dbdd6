package domain

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

// asked is until when a certificate authority has asked to be left alone, by the header Retry-After of what it refuses (RFC 8555, 6.6): the client library tells the headers of answers to its log, and to nobody else.
// It is that log, which keeps nothing beside. Of two orders at the same moment, what is said of one holds for both if both are refused.
type asked struct {
	zapcore.Core // which drops everything

	mu        sync.Mutex
	at, until time.Time
}

func newAsked() *asked { return &asked{Core: zapcore.NewNopCore()} }

// Enabled takes the level at which answers are told.
func (a *asked) Enabled(l zapcore.Level) bool { return l == zapcore.DebugLevel }

// With keeps no fields: what is looked at comes with the entry.
func (a *asked) With([]zapcore.Field) zapcore.Core { return a }

// Check takes what is told of an answer.
func (a *asked) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Message != "http request" {
		return c
	}
	return c.AddCore(e, a)
}

// Write notes what an answer asks for that refuses.
func (a *asked) Write(_ zapcore.Entry, fields []zapcore.Field) error {
	var status int64
	var headers http.Header
	for _, f := range fields {
		switch f.Key {
		case "status_code":
			status = f.Integer
		case "response_headers":
			headers, _ = f.Interface.(http.Header)
		}
	}
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return nil
	}
	now := time.Now()
	until, ok := later(headers.Get("Retry-After"), now)
	if !ok {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.until = now, until
	return nil
}

// since is how long it has to be left alone by what it has said since then; 0 if it has said nothing.
func (a *asked) since(begun, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at.Before(begun) {
		return 0
	}
	return min(max(a.until.Sub(now), 0), longest)
}

// later reads the header: seconds, or a date.
func later(value string, now time.Time) (time.Time, bool) {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return now.Add(time.Duration(n) * time.Second), true
	}
	at, err := http.ParseTime(value)
	return at, err == nil
}
