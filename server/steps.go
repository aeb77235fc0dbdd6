package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// steps stop what was started, in reverse: of the server, or of one machine that was added to it.
type steps struct {
	broken chan error // what ended although it should not

	mu    sync.Mutex
	all   []stopStep
	ended bool // all were stopped
}

// stopStep is one part that is stopped.
type stopStep struct {
	what string
	stop func(context.Context) error
}

// onStop has a part stopped, after everything that was started later; at once when all others were stopped.
func (s *steps) onStop(what string, stop func(context.Context) error) {
	s.mu.Lock()
	late := s.ended
	if !late {
		s.all = append(s.all, stopStep{what, stop})
	}
	s.mu.Unlock()
	if late {
		ctx, end := context.WithTimeout(context.Background(), stopWithin)
		defer end()
		_ = stop(ctx) // there is nobody to tell
	}
}

// breaks tells what ended although it should not. One such error ends the server; nobody hears those of a machine that is not added after all.
func (s *steps) breaks(err error) {
	select {
	case s.broken <- err:
	default: // there are more than enough
	}
}

// goes runs something that should end only when it is told to: else it tells broken, which ends the server. onStop waits for it.
func (s *steps) goes(ctx context.Context, what string, f func(context.Context) error) {
	inner, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(inner); inner.Err() == nil {
			s.breaks(fmt.Errorf("%s ended: %w", what, err))
		}
	}()
	s.onStop(what, func(stop context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-stop.Done():
			return fmt.Errorf("%s does not stop", what)
		}
	})
}

// stopAll stops what was started, in reverse, and says before each what it is.
func (s *steps) stopAll(ctx context.Context, tell func(string)) (err error) {
	for {
		s.mu.Lock()
		n := len(s.all)
		if n == 0 {
			s.ended = true
			s.mu.Unlock()
			return err
		}
		last := s.all[n-1]
		s.all = s.all[:n-1]
		s.mu.Unlock()
		tell(last.what)
		err = errors.Join(err, last.stop(ctx))
	}
}
