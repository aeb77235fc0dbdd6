package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bcc94042/instar/internal/wait"
)

// shard is a part of the aggregates that this relay holds the lease of.
type shard struct {
	number  int
	lost    <-chan struct{}
	release func()
	s       *session // nil until it is opened
}

// shards are those that a relay holds. Leases outlive faults, sessions do not.
type shards struct {
	r     *Relay
	o     *opener
	held  map[int]*shard
	count int               // of all, held or not
	live  int               // those that are appended to; the others are former ones, of which the table has rows
	rest  map[int]time.Time // when a shard that was taken away may be asked for again

	asked   time.Time
	looked  time.Time // at the stream
	checked time.Time // that the source is of this outbox alone
}

// lookEvery is how often the stream's configuration is looked at: somebody may change its limits and replicas.
const lookEvery = 5 * time.Second

func (l *shards) look(ctx context.Context) {
	if time.Since(l.looked) < lookEvery {
		return
	}
	l.looked = time.Now()
	if can, err := l.o.stream.ensure(ctx, l.o.js); err == nil { // if not, publishing will tell
		l.o.pub.can, l.o.pub.enc.limit = can, can.maxBytes
	}
}

// tend gives up what was lost, asks for what is free and gives away what others should have, about once a second. It
// reports whether shards have come. Nothing may be under way.
func (l *shards) tend(ctx context.Context) (came bool, err error) {
	l.look(ctx)
	for n, h := range l.held {
		select {
		case <-h.lost:
			l.r.Log.Info("a shard has gone to another relay", "shard", n)
		default:
			if n < l.count {
				continue
			}
			l.r.Log.Info("a shard is no more", "shard", n)
		}
		h.release()
		delete(l.held, n)
	}
	if time.Since(l.asked) < time.Second && !l.asked.IsZero() {
		return false, nil
	}
	l.asked = time.Now()
	share := l.r.Leases.Share(ctx, l.count, len(l.held))
	if len(l.held) < share && time.Since(l.checked) > lookEvery { // what holds the others may be no relay of this outbox
		if err := l.o.alone(ctx); err != nil {
			return false, err
		}
		l.checked = time.Now()
	}
	for n := range l.count {
		if len(l.held) >= share {
			break
		}
		if l.held[n] != nil || time.Now().Before(l.rest[n]) {
			continue
		}
		if lost, release, ok := l.r.Leases.Acquire(ctx, n); ok {
			l.held[n] = &shard{number: n, lost: lost, release: release}
			came = true
		}
	}
	return came, l.give(ctx, len(l.held)-share)
}

// give leaves so many shards to other relays, the last ones first.
func (l *shards) give(ctx context.Context, surplus int) error {
	for n := l.count - 1; n >= 0 && surplus > 0; n-- {
		h := l.held[n]
		if h == nil {
			continue
		}
		if err := l.finishOne(ctx, h); err != nil {
			return err
		}
		l.r.Log.Info("gives a shard to another relay", "shard", n)
		h.release()
		delete(l.held, n)
		surplus--
	}
	return nil
}

// yield gives up the shards that somebody else has opened, and leaves them alone for a while.
func (l *shards) yield(ctx context.Context) {
	for n, h := range l.held {
		if h.s == nil {
			continue
		}
		m, _, err := l.o.last(ctx, h.s.subject)
		if err == nil && m.Session != h.s.id {
			l.r.Log.Warn("a shard was opened by another relay", "shard", n, "by", m.Node)
			h.release()
			delete(l.held, n)
			l.rest[n] = time.Now().Add(l.r.Config.Lease / 3)
		}
	}
}

// open is a shard that is held and open, or nil.
func (l *shards) open(n int) *shard {
	if h := l.held[n]; h != nil && h.s != nil {
		return h
	}
	return nil
}

// close forgets the sessions; leases are kept.
func (l *shards) close() {
	for _, h := range l.held {
		h.s = nil
	}
	l.r.stands(l)
}

func (l *shards) releaseAll() {
	for n, h := range l.held {
		h.release()
		delete(l.held, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.r.Leases.Leave(ctx)
}

// sessions are those of the shards that are open.
func (l *shards) sessions() []*session {
	var list []*session
	for _, h := range l.held {
		if h.s != nil {
			list = append(list, h.s)
		}
	}
	return list
}

// finish writes markers that say that there is nothing to read back, where that is so. It is called when a relay stops; without it the
// next session only has more to read.
func (l *shards) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	var all []error
	for _, h := range l.held {
		all = append(all, l.finishOne(ctx, h))
	}
	return errors.Join(all...)
}

// finishOne does it for one shard, and closes it.
func (l *shards) finishOne(ctx context.Context, h *shard) error {
	if h.s == nil {
		return nil
	}
	s := h.s
	h.s = nil
	s.ending = true
	if _, err := l.o.publish(ctx, nil, []*session{s}); err != nil {
		return fmt.Errorf("relay: cannot leave shard %d: %w", h.number, err)
	}
	return nil
}

// due are the sessions that should write a marker.
func (l *shards) due(now time.Time, maxAge time.Duration) []*session {
	var list []*session
	for _, h := range l.held {
		if h.s != nil && h.s.due(now, maxAge) {
			list = append(list, h.s)
		}
	}
	return list
}

// await asks for the one shard of a mode that has no others, until it is held or ctx ends.
func (l *shards) await(ctx context.Context, poll time.Duration) error {
	for {
		if _, err := l.tend(ctx); err != nil {
			return err
		}
		if l.held[0] != nil {
			return nil
		}
		if !wait.For(ctx, min(poll, time.Second)) {
			return ctx.Err()
		}
	}
}

// ended is what becomes of such a shard when its engine has stopped: leave is called when that was wanted and it is known
// what was stored, and another relay gets the shard that it has taken.
func (l *shards) ended(ctx context.Context, err error, begun bool, leave func(context.Context, error) error) error {
	switch {
	case errors.Is(err, ErrDrained), errors.Is(err, errSettings), ctx.Err() != nil && !begun && !errors.Is(err, errDoubt):
		return leave(ctx, err)
	case errors.Is(err, errFenced):
		l.yield(context.WithoutCancel(ctx))
	}
	return err
}

// graver is the one of two ends of lanes that decides what may be said of both: a batch in doubt is not hidden by a lane that was stopped.
func graver(a, b error) error {
	grave := func(err error) int {
		for i, kind := range []error{errFenced, errDoubt} {
			if errors.Is(err, kind) {
				return 5 - i
			}
		}
		switch {
		case err == nil:
			return 0
		case errors.Is(err, ErrDrained):
			return 1
		case errors.Is(err, context.Canceled):
			return 2
		}
		return 3
	}
	if grave(b) > grave(a) {
		return b
	}
	return a
}
