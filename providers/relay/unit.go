package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/streams/outbox"
)

// unit is one source and its engine.
type unit struct {
	p      *Provider
	source Source
	log    *slog.Logger
	poke   chan struct{} // the wish has changed, or it is to be tried at once

	opening sync.Mutex // one Open or Close at a time

	mu      sync.Mutex
	wish    Wish
	version uint64 // of the entity whose wish it is
	drained uint64 // the version that the last drain was for
	engine  Engine // nil while there is none
	running bool
	idle    chan struct{} // closed when the engine does not run; nil before the first run
	up      chan struct{} // closed when it runs
	problem error         // why it does not run although it should
	fails   int           // tries in a row that ended
	ends    uint64        // tries that ended, in all

	last  outbox.Status
	seen  time.Time
	moved time.Time // when something moved last, or nothing had to
	at    string    // positions then
}

// follow takes a wish and wakes the loop when it is new. It returns the highest version of which one was taken: a higher one than this wish's says that it was not.
func (u *unit) follow(w Wish, version uint64) uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if version < u.version || w == Drain && version == u.drained { // it was drained for this one
		return u.version
	}
	u.version = version
	if u.wish != w {
		u.wish = w
		u.moved = time.Now()
		u.wake()
	}
	return version
}

func (u *unit) wake() {
	select {
	case u.poke <- struct{}{}:
	default:
	}
}

func (u *unit) wanted() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.wish != Stand
}

// maxBackoff bounds the wait before an engine that ended is started again.
const maxBackoff = 30 * time.Second

func (u *unit) run(ctx context.Context) {
	defer u.close()
	for ctx.Err() == nil {
		if !u.wanted() {
			u.settle(nil)
			select {
			case <-u.poke:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := u.serve(ctx)
		if errors.Is(err, ErrDrained) {
			u.empty()
		}
		if ctx.Err() != nil || !u.wanted() {
			u.settle(nil)
			continue
		}
		if time.Since(began) > time.Minute {
			u.forgive()
		}
		if err == nil {
			err = errors.New("the relay ended without being told to")
		}
		wait := u.settle(err)
		level := slog.LevelWarn
		if errors.Is(err, ErrNotYet) {
			level = slog.LevelDebug
		}
		u.log.Log(ctx, level, "the relay does not run; retrying", "in", wait, "error", err)
		u.p.noticed(u.source.Name)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-u.poke:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// empty notes that a drain came to its end.
func (u *unit) empty() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.wish == Drain {
		u.wish, u.drained = Stand, u.version
	}
}

func (u *unit) forgive() {
	u.mu.Lock()
	u.fails = 0
	u.mu.Unlock()
}

// settle keeps why the engine does not run, and returns how long to wait before the next try.
func (u *unit) settle(err error) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.problem = err
	if err == nil {
		u.fails = 0
		return 0
	}
	u.fails++
	u.ends++
	return min(time.Second<<min(u.fails-1, 10), maxBackoff)
}

// serve opens the engine and runs it until ctx ends, nobody wants it any more, or it cannot go on.
func (u *unit) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	opened := make(chan Engine, 1)
	watching.Go(func() { u.watch(ctx, opened, cancel) })
	engine, err := u.open(ctx)
	if err != nil {
		return err
	}
	opened <- engine
	u.started()
	defer u.ended()
	return guarded(ctx, engine)
}

// watch tells a running engine of the wishes of its entity.
func (u *unit) watch(ctx context.Context, opened <-chan Engine, cancel func()) {
	var drains sync.WaitGroup
	defer drains.Wait()
	var engine Engine
	for draining := false; ; {
		u.mu.Lock()
		wish := u.wish
		u.mu.Unlock()
		switch {
		case wish == Stand, wish == Relay && draining: // a drain cannot be taken back: it starts anew
			cancel()
			return
		case wish == Drain && engine != nil && !draining:
			draining = true
			drains.Go(func() { _ = engine.Drain(ctx) }) // Run says how it ended
		}
		select {
		case engine = <-opened:
		case <-u.poke:
		case <-ctx.Done():
			return
		}
	}
}

// guarded turns a panic of an engine into an error.
func guarded(ctx context.Context, e Engine) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panics.Error("relay", r)
		}
	}()
	return e.Run(ctx)
}

func (u *unit) started() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running, u.problem, u.idle = true, nil, make(chan struct{})
	if u.up != nil {
		close(u.up)
		u.up = nil
	}
}

func (u *unit) ended() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running = false
	close(u.idle)
}

// open returns the engine, made if there is none.
func (u *unit) open(ctx context.Context) (Engine, error) {
	u.opening.Lock()
	defer u.opening.Unlock()
	u.mu.Lock()
	e := u.engine
	u.mu.Unlock()
	if e != nil {
		return e, nil
	}
	e, err := u.source.Open(ctx)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	u.engine = e
	u.mu.Unlock()
	return e, nil
}

func (u *unit) close() {
	u.opening.Lock()
	defer u.opening.Unlock()
	u.mu.Lock()
	e := u.engine
	u.engine = nil
	u.mu.Unlock()
	if e != nil {
		e.Close()
	}
}

// status asks the engine, which is opened for it if need be.
func (u *unit) status(ctx context.Context) (outbox.Status, error) {
	e, err := u.open(ctx)
	if err != nil {
		return outbox.Status{}, err
	}
	s, err := e.Status(ctx)
	if err != nil {
		return outbox.Status{}, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last, u.seen = s, time.Now()
	return s, nil
}

// still is how long nothing has moved although something should. It is asked after a look, with what that saw.
func (u *unit) still(s *outbox.Status, trouble bool) time.Duration {
	var at strings.Builder
	blocked := int64(0)
	for _, sh := range s.Shards {
		fmt.Fprintf(&at, "%d=%s ", sh.Number, sh.Position)
	}
	for _, p := range s.Parked {
		blocked += 1 + p.Waiting
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if u.wish == Stand || !trouble && (s.Lag <= blocked || at.String() != u.at) {
		u.moved, u.at = now, at.String()
	}
	return now.Sub(u.moved)
}
