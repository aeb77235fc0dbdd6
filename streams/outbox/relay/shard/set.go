package shard

// The shards that a relay holds. Both modes call Tend about once a second: it drops shards whose lease was lost, asks for leases up to the share of this relay (ask), and
// finishes and releases what others should have (give). Opened adds the session of a shard, Session and Due give sessions to those who publish, and Yield, Finish and Release end
// it.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bcc94042/instar/streams/outbox/relay/session"
)

// Set are the shards that a relay holds the leases of. Leases outlive faults, sessions do not.
type Set struct {
	Leases Leases
	Rest   time.Duration // for how long a shard that was taken away is not asked for again
	Log    *slog.Logger

	Opener *session.Opener
	Count  int // of all shards, held or not
	Live   int // those that are appended to; the others are former ones, of which the table has rows

	held  map[int]*lease
	avoid map[int]time.Time // when a shard that was taken away may be asked for again

	asked   time.Time
	looked  time.Time // at the stream
	checked time.Time // that the source is of this outbox alone
}

// lease is that of a shard.
type lease struct {
	lost    <-chan struct{}
	release func()
	session *session.Session // nil until it is opened
}

// lookEvery is how often the stream's configuration is read: somebody may change its limits and replicas.
const lookEvery = 5 * time.Second

func (l *Set) look(ctx context.Context) {
	if time.Since(l.looked) < lookEvery {
		return
	}
	l.looked = time.Now()
	if can, err := l.Opener.Stream.Ensure(ctx, l.Opener.JS); err == nil { // if not, publishing will fail
		l.Opener.Pub.Adopt(can)
	}
}

// Tend gives up what was lost, asks for what is free and gives away what others should have, about once a second. It
// reports whether shards have come or gone. Nothing may be under way.
func (l *Set) Tend(ctx context.Context) (changed bool, err error) {
	l.look(ctx)
	before := len(l.held)
	for n, h := range l.held {
		select {
		case <-h.lost:
			l.Log.Info("another relay has taken a shard", "shard", n)
		default:
			if n < l.Count {
				continue
			}
			l.Log.Info("a shard no longer exists", "shard", n)
		}
		l.drop(n)
	}
	if time.Since(l.asked) < time.Second {
		return len(l.held) != before, nil
	}
	l.asked = time.Now()
	share := l.Leases.Share(ctx, l.Count, len(l.held))
	if len(l.held) < share && time.Since(l.checked) > lookEvery { // the others may be held by a relay of another outbox
		if err := l.Opener.Alone(ctx); err != nil {
			return len(l.held) != before, err
		}
		l.checked = time.Now()
	}
	came := l.ask(ctx, share)
	err = l.give(ctx, len(l.held)-share)
	return came || len(l.held) != before, err
}

// ask takes leases until there are so many.
func (l *Set) ask(ctx context.Context, share int) (came bool) {
	for n := range l.Count {
		if len(l.held) >= share {
			break
		}
		if l.held[n] != nil || time.Now().Before(l.avoid[n]) {
			continue
		}
		if lost, release, ok := l.Leases.Acquire(ctx, n); ok {
			if l.held == nil {
				l.held = map[int]*lease{}
			}
			l.held[n] = &lease{lost: lost, release: release}
			came = true
		}
	}
	return came
}

// give leaves so many shards to other relays, the last ones first.
func (l *Set) give(ctx context.Context, surplus int) error {
	for n := l.Count - 1; n >= 0 && surplus > 0; n-- {
		h := l.held[n]
		if h == nil {
			continue
		}
		if err := l.finish(ctx, n); err != nil {
			return err
		}
		l.Log.Info("handing a shard over to another relay", "shard", n)
		l.drop(n)
		surplus--
	}
	return nil
}

func (l *Set) drop(n int) {
	l.held[n].release()
	delete(l.held, n)
}

// Yield gives up the shards that somebody else has opened, and leaves them alone for a while.
func (l *Set) Yield(ctx context.Context) {
	for n, h := range l.held {
		if h.session == nil {
			continue
		}
		if by, taken := h.session.TakenBy(ctx); taken {
			l.Log.Warn("a shard was opened by another relay", "shard", n, "by", by)
			l.drop(n)
			if l.avoid == nil {
				l.avoid = map[int]time.Time{}
			}
			l.avoid[n] = time.Now().Add(l.Rest)
		}
	}
}

// Held is how many shards there are, open or not.
func (l *Set) Held() int { return len(l.held) }

// Unopened are the shards that are held and not open.
func (l *Set) Unopened() (list []int) {
	for n, h := range l.held {
		if h.session == nil {
			list = append(list, n)
		}
	}
	return list
}

// Opened adds the session of a shard that was opened.
func (l *Set) Opened(s *session.Session) { l.held[s.Shard].session = s }

// Session is that of a shard that is held and open, or nil.
func (l *Set) Session(n int) *session.Session {
	if h := l.held[n]; h != nil {
		return h.session
	}
	return nil
}

// Sessions are those of the shards that are open.
func (l *Set) Sessions() (list []*session.Session) {
	for _, h := range l.held {
		if h.session != nil {
			list = append(list, h.session)
		}
	}
	return list
}

// Due are the sessions that should write a marker.
func (l *Set) Due() []*session.Session {
	now, maxAge := time.Now(), l.Opener.Pub.Can.MaxAge
	return slices.DeleteFunc(l.Sessions(), func(s *session.Session) bool { return !s.Due(now, maxAge) })
}

// Finish writes markers that say that there is nothing to read back, where that is so. It is called when a relay stops; without it, the next session has more to read.
func (l *Set) Finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	var all []error
	for n := range l.held {
		all = append(all, l.finish(ctx, n))
	}
	return errors.Join(all...)
}

// finish does it for one shard, and closes it.
func (l *Set) finish(ctx context.Context, n int) error {
	s := l.held[n].session
	if s == nil {
		return nil
	}
	l.held[n].session = nil
	s.End()
	if _, err := l.Opener.Publish(ctx, nil, []*session.Session{s}); err != nil {
		return fmt.Errorf("relay: cannot leave shard %d: %w", n, err)
	}
	return nil
}

// Close forgets the sessions; leases are kept.
func (l *Set) Close() {
	for _, h := range l.held {
		h.session = nil
	}
}

// Release gives all leases back.
func (l *Set) Release() {
	for n := range l.held {
		l.drop(n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.Leases.Leave(ctx)
}
