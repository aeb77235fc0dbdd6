package rest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/internal/panics"
)

// readTurns are those of what storage is asked: how much of it is under way at once, and how much of that those share who ask for much, beside
// small clients. What hangs, as a bucket without a leader does, keeps the reads of others waiting for a moment only.
var readTurns = limits.Turns{All: 64, Small: 8, Hold: time.Second}

// InTurn lets f read from storage when the client's turn comes. The error is that of f, or a problem. Turns are not taken within turns.
func (q *Request) InTurn(f func() error) error {
	return q.EachInTurn(1, 1, func(int) error { return f() })
}

// EachInTurn calls f with 0 to n-1, up to atOnce at once, each when the client's turn comes: however much one request reads, others are next after
// one piece of it. The first error ends it. A request that finds no place in the line is refused before anything is read; it makes do with fewer than
// atOnce.
func (q *Request) EachInTurn(n, atOnce int, f func(i int) error) error {
	var places []*limits.Place
	for range min(n, atOnce) {
		p, err := q.server.Reads.Join(q.Client())
		if err != nil && len(places) == 0 {
			return TooMany(err, time.Second)
		}
		if err != nil {
			break
		}
		places = append(places, p)
	}
	e := &each{n: int64(n), f: f, within: q.server.o.TurnWithin}
	if len(places) == 1 {
		return e.from(q.Context(), places[0])
	}
	ctx, end := context.WithCancelCause(q.Context())
	defer end(nil)
	var all sync.WaitGroup
	for _, p := range places {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					end(panics.Error("http", p))
				}
			}()
			if err := e.from(ctx, p); err != nil {
				end(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// each is what is done in turns.
type each struct {
	n      int64
	next   atomic.Int64
	f      func(i int) error
	within time.Duration // a turn has to come
}

// from does what is left, from one place in the line.
func (e *each) from(ctx context.Context, p *limits.Place) error {
	defer p.Leave()
	for again := false; ; again = true {
		i := e.next.Add(1) - 1
		if i >= e.n {
			return nil
		}
		if again {
			p.Again()
		}
		if err := e.wait(ctx, p); err != nil {
			return err
		}
		if err := e.f(int(i)); err != nil {
			return err
		}
	}
}

func (e *each) wait(ctx context.Context, p *limits.Place) error {
	turn, cancel := context.WithTimeout(ctx, e.within)
	defer cancel()
	err := p.Wait(turn)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return TurnTooLate()
	}
	return err
}
