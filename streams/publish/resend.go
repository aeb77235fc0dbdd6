package publish

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
)

// moves is how long a stream may be without a leader that moves from one server of a cluster to another.
const moves = time.Second

// settles is how long a new leader may call an id of the old one's still under way.
const settles = 4 * time.Second

// sending is a command on its way into the stream, in one try or several under the same id, of which the stream takes one.
type sending struct {
	c     *Commands
	m     *nats.Msg
	began time.Time
	done  func(Result)

	mu    sync.Mutex
	open  int  // tries without a result
	due   bool // another try is planned
	known bool // it is answered, so it was stored: there is no other try
	ended bool
	timer *time.Timer

	unknown bool // whether a try has stored it
}

// newSending is of a command that is to be stored. That nobody listens for the stream says that it was not stored, and may be over in a moment.
// Without any answer for [Commands.Again], or when another server comes to lead the stream, it is sent again: the leader
// before may have lost it.
func newSending(c *Commands, m *nats.Msg, done func(Result)) *sending {
	return &sending{c: c, m: m, began: time.Now(), done: done}
}

// answered has it sent no more: it was stored, whatever becomes of its tries. A stream that has removed it since, and was started anew, does not know its id any more, and would take it once more.
func (s *sending) answered() {
	s.mu.Lock()
	s.known, s.due = true, false
	if s.timer != nil {
		s.timer.Stop()
	}
	idle := s.open == 0 && !s.ended
	s.ended = s.ended || idle
	s.mu.Unlock()
	if idle { // it was waiting for another try
		s.done(Result{})
	}
}

// try sends it once, and plans the next time.
func (s *sending) try() {
	s.mu.Lock()
	s.due = false
	if s.ended || s.known {
		s.mu.Unlock()
		return
	}
	s.open++
	if s.c.Again > 0 && time.Since(s.began) < s.c.a.wait/2 { // for a while; it should come to an end
		s.plan(s.c.Again)
	}
	s.mu.Unlock()
	s.publish()
}

// plan is called under the lock.
func (s *sending) plan(in time.Duration) {
	s.due = true
	s.timer = time.AfterFunc(in, s.try)
}

func (s *sending) publish() {
	m := s.m
	if s.c.Again > 0 { // a try before may still be on its way out
		m = &nats.Msg{Subject: s.m.Subject, Header: s.m.Header, Data: s.m.Data}
	}
	s.c.a.Go(s.c.a.names.Stream(streams.CommandStream), m, s.result)
}

// result ends the sending, unless there is hope in another try.
func (s *sending) result(r Result) {
	s.mu.Lock()
	s.open--
	s.unknown = s.unknown || errors.Is(r.Err, ErrUnanswered) && !errors.Is(r.Err, errNoStream)
	if s.known {
		r.Err = nil
	}
	var refused *RefusedError
	wait, again := time.Duration(0), false
	switch {
	case s.ended:
		s.mu.Unlock()
		return
	case r.Err == nil:
	case errors.Is(r.Err, errMoved): // which NATS says shortly before the leader listens; so it begins anew
		wait, again = 20*time.Millisecond, s.c.Again > 0
		s.began = time.Now()
	case errors.Is(r.Err, errNoStream):
		wait, again = 20*time.Millisecond, time.Since(s.began) < moves
	case errors.As(r.Err, &refused):
		wait, again = 100*time.Millisecond, refused.Code == codeDuplicateInFlight && time.Since(s.began) < settles
	}
	if r.Err != nil && !again && refused == nil && (s.open > 0 || s.due) { // not known, or not stored: another try will tell
		s.mu.Unlock()
		return
	}
	if again {
		if !s.due {
			s.plan(wait)
		} else if s.timer != nil && s.timer.Stop() {
			s.timer.Reset(wait)
		}
		s.mu.Unlock()
		return
	}
	if (s.unknown || s.open > 0) && r.Err != nil && (NotStored(r.Err) || !errors.Is(r.Err, ErrUnanswered)) { // this try was not stored, but another one may be
		r.Err = fmt.Errorf("%w; another try: %v", ErrUnanswered, r.Err) // not wrapped: nobody is to read in it that nothing is stored
	}
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.done(r)
}
