package log

// The turns of mode log. Run, called by relay (relay/run.go), repeats: it takes shards and opens them (tend in open.go), retries what is parked (deliver.Retry), publishes the
// batch that was read (deliver.Deliver) while the next one is read (read.go), and writes markers and cursors (mark). An error ends Run, and the next attempt opens the shards
// again; at a regular end leave writes markers that spare the next relay reading back.

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
	"github.com/bcc94042/instar/streams/outbox/relay/log/deliver"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// Loop relays the append-only table: it reads behind a cursor.
type Loop struct {
	Control *control.Control
	Config  outbox.Config
	Pool    *pgxpool.Pool
	Shards  *shard.Set

	deliverer *deliver.Deliverer
	reader    *reader

	ahead   chan read // the batch that is being read while another one is published; nil for none
	aheadAt request
	saved   time.Time // of the cursor in the database
}

// Run retries what is parked and due, publishes the next batch, and rests, until ctx ends or something fails; it returns nil when it was asked to drain, and has. If it can, it
// ends with markers that say that the sessions have ended.
func (l *Loop) Run(ctx context.Context) error {
	var err error
	if l.reader, err = newReader(ctx, l.Pool, l.Config, l.Control); err != nil {
		return err
	}
	defer l.reader.close()
	defer l.drop()
	l.deliverer = &deliver.Deliverer{Control: l.Control, Config: l.Config, Pool: l.Pool, Shards: l.Shards}
	for {
		paused, draining, changed := l.Control.Switches()
		if err := l.tend(ctx); err != nil {
			return l.broken(ctx, err)
		}
		if ctx.Err() != nil {
			return l.leave(ctx, ctx.Err())
		}
		l.Control.Stands(l.Shards.Sessions())
		busy := false
		rest := l.Config.Poll
		if !paused {
			busy, rest, err = l.step(ctx)
			if err != nil {
				return l.broken(ctx, err)
			}
		}
		if draining && !busy && rest >= l.Config.Poll && l.Shards.Held() > 0 {
			return l.leave(ctx, nil)
		}
		if busy && (l.Shards.Held() == l.Shards.Count || time.Since(l.saved) < time.Second) {
			continue
		}
		if err := l.mark(ctx); err != nil {
			return l.broken(ctx, err)
		}
		if busy {
			continue
		}
		l.Control.Problem(nil)
		l.rest(ctx, rest, changed)
	}
}

// rest waits for a wake-up, for a while at most.
func (l *Loop) rest(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.Control.Woken():
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	}
}

// broken finds out whether shards were taken away, before everything is opened again.
func (l *Loop) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil && !l.deliverer.Begun() && !errors.Is(err, sink.ErrUnknown) {
		return l.leave(ctx, ctx.Err())
	}
	if errors.Is(err, sink.ErrFenced) {
		l.Shards.Yield(context.WithoutCancel(ctx))
	}
	return err
}

// leave ends with markers that say that nothing is under way.
func (l *Loop) leave(ctx context.Context, why error) error {
	l.drop()
	ctx = context.WithoutCancel(ctx)
	sessions := l.Shards.Sessions()
	if err := l.Shards.Finish(ctx); err != nil {
		l.Control.Log.Warn("the next relay has to read back", "error", err)
		return why
	}
	stop, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := l.Shards.Opener.SavePositions(stop, sessions...)
	if err = errors.Join(err, l.Shards.Opener.Note(stop, sessions...)); err != nil {
		l.Control.Log.Warn("cannot save the position for the status", "error", err)
	}
	return why
}

// mark writes the markers that are due when nothing is under way, and the positions into the database, where the status is read: more often when other relays hold shards,
// because then none of them has all positions.
func (l *Loop) mark(ctx context.Context) error {
	now := time.Now()
	if due := l.Shards.Due(); len(due) > 0 {
		if _, err := l.Shards.Opener.Publish(context.WithoutCancel(ctx), nil, due); err != nil {
			return err
		}
		l.saved = time.Time{}
	}
	every := session.MarkAfter
	if l.Shards.Held() < l.Shards.Count {
		every = time.Second
	}
	if now.Sub(l.saved) < every {
		return nil
	}
	l.saved = now
	if err := l.Shards.Opener.SavePositions(ctx, l.Shards.Sessions()...); err != nil {
		return err
	}
	return l.Shards.Opener.Note(ctx, l.Shards.Sessions()...)
}

// request is the next batch to read: those shards that stand at the same position, up to where the next ones stand.
type request struct {
	from, upto int64 // upto is 0 for no bound
	shards     uint64
}

func (l *Loop) next() (request, []int) {
	var q request
	var list []int
	first := true
	for _, s := range l.Shards.Sessions() {
		at := int64(s.Pos)
		switch {
		case first || at < q.from:
			if !first {
				q.upto = q.from
			}
			q.from, list, first = at, []int{s.Shard}, false
		case at == q.from:
			list = append(list, s.Shard)
		case q.upto == 0 || at < q.upto:
			q.upto = at
		}
	}
	for _, n := range list {
		q.shards |= 1 << n
	}
	return q, list
}

// step retries what is due and publishes a batch. It reports whether there is more to do at once, and how long to rest
// otherwise.
func (l *Loop) step(ctx context.Context) (busy bool, rest time.Duration, err error) {
	rest = l.Config.Poll
	if l.Shards.Held() == 0 {
		return false, min(rest, time.Second), nil
	}
	wait, err := l.deliverer.Retry(ctx)
	if err != nil {
		return false, 0, err
	}
	rest = min(rest, wait)
	q, list := l.next()
	got, err := l.batch(ctx, q, list)
	if err != nil {
		return false, 0, err
	}
	if len(got.rows) == 0 {
		for _, n := range list { // no rows of theirs: those that were behind others have caught up with them
			s := l.Shards.Session(n)
			s.Pos = max(s.Pos, sink.Position(got.upto))
		}
		if got.wait > 0 {
			return false, min(rest, got.wait), nil
		}
		return q.upto > 0, rest, nil
	}
	last := got.rows[len(got.rows)-1].Pos
	if got.full { // read on while these are published
		l.start(ctx, request{int64(last), q.upto, q.shards}, list)
	}
	l.Control.At("read")
	if err := l.deliverer.Deliver(ctx, got.rows, list, last); err != nil {
		return false, 0, err
	}
	return got.full || q.upto > 0, rest, nil
}

// start reads a batch ahead, in the background.
func (l *Loop) start(ctx context.Context, q request, list []int) {
	c := make(chan read, 1)
	l.ahead, l.aheadAt = c, q
	go func() { c <- l.reader.read(ctx, q, list, l.Shards.Count) }()
}

// batch is what is read at q: the one that was read ahead, if it is that.
func (l *Loop) batch(ctx context.Context, q request, list []int) (read, error) {
	if l.ahead != nil && l.aheadAt != q {
		l.drop()
	}
	if l.ahead != nil {
		got := <-l.ahead
		l.ahead = nil
		if got.err != nil || got.wait == 0 {
			return got, got.err
		}
	}
	got := l.reader.read(ctx, q, list, l.Shards.Count)
	return got, got.err
}

// drop waits for what is read ahead and forgets it.
func (l *Loop) drop() {
	if l.ahead != nil {
		<-l.ahead
		l.ahead = nil
	}
}
