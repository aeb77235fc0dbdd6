package relay

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// logEngine reads the append-only table behind a cursor.
type logEngine struct {
	r      *Relay
	pool   *pgxpool.Pool
	shards *shards
	pub    *publisher
	settings
	lot    *lot
	reader *reader

	ahead   chan read // the batch that is being read while another one is published; nil for none
	aheadAt request
	saved   time.Time // of the cursor in the database
}

// serve is the loop: what is parked and due, then the next batch, then rest.
func (e *logEngine) serve(ctx context.Context) error {
	var err error
	if e.reader, err = newReader(ctx, e.pool, e.r); err != nil {
		return err
	}
	defer e.reader.close()
	defer e.drop()
	e.lot = &lot{r: e.r, pool: e.pool, shards: e.shards, pub: e.pub}
	for {
		paused, draining, changed := e.r.switches()
		if err := e.tend(ctx); err != nil {
			return e.broken(ctx, err)
		}
		if ctx.Err() != nil {
			return e.leave(ctx, ctx.Err())
		}
		e.r.stands(e.shards)
		busy := false
		rest := e.r.Config.Poll
		if !paused {
			busy, rest, err = e.step(ctx)
			if err != nil {
				return e.broken(ctx, err)
			}
		}
		if draining && !busy && rest >= e.r.Config.Poll && len(e.shards.held) > 0 {
			return e.leave(ctx, ErrDrained)
		}
		if busy && (len(e.shards.held) == e.shards.count || time.Since(e.saved) < time.Second) {
			continue
		}
		if err := e.settle(ctx); err != nil {
			return e.broken(ctx, err)
		}
		if busy {
			continue
		}
		e.r.well()
		e.rest(ctx, rest, changed)
	}
}

// rest waits for a wake-up, for a while at most.
func (e *logEngine) rest(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-e.r.wake:
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	}
}

// broken finds out whether shards were taken away, before everything is opened again.
func (e *logEngine) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil && !e.lot.begun && !errors.Is(err, errDoubt) {
		return e.leave(ctx, ctx.Err())
	}
	if errors.Is(err, errFenced) {
		e.shards.yield(context.WithoutCancel(ctx))
	}
	return err
}

// leave ends with markers that say that nothing is under way.
func (e *logEngine) leave(ctx context.Context, why error) error {
	e.drop()
	ctx = context.WithoutCancel(ctx)
	sessions := e.shards.sessions()
	if err := e.shards.finish(ctx); err != nil {
		e.r.Log.Warn("the next relay has to read back", "error", err)
		return why
	}
	stop, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := savePositions(stop, e.pool, e.shards.o, sessions...)
	if err = errors.Join(err, e.shards.o.note(stop, e.pool, sessions...)); err != nil {
		e.r.Log.Warn("cannot save the position for the status", "error", err)
	}
	return why
}

// tend opens the shards that have come and forgets those that have gone.
func (e *logEngine) tend(ctx context.Context) error {
	before := len(e.shards.held)
	came, err := e.shards.tend(ctx)
	if came || len(e.shards.held) != before {
		e.drop()
	}
	if err != nil {
		return err
	}
	for _, h := range e.shards.held {
		if h.s != nil {
			continue
		}
		if err := e.open(ctx, h); err != nil {
			return err
		}
	}
	e.shards.o.back, e.shards.o.fresh = nil, nil
	return nil
}

// open opens a shard at the position in the stream; the one in the database only serves when the stream has none.
func (e *logEngine) open(ctx context.Context, h *shard) error {
	saved, err := savedPosition(ctx, e.pool, e.shards.o, h.number)
	if err != nil {
		return err
	}
	accepted, err := e.shards.o.notSetBack(ctx, e.pool, h.number)
	var back *setBackError
	switch {
	case errors.As(err, &back) && back.from > 0:
		e.r.Log.Warn("the stream is at an older state than the database; what it has lost is published again", "shard", h.number, "from", back.before.Position)
	case back != nil:
		return permanent(err)
	case err != nil:
		return err
	}
	s, err := e.shards.o.open(ctx, h.number, saved)
	if err != nil {
		if errors.Is(err, errForeign) {
			return permanent(err)
		}
		return err
	}
	if s.back {
		e.r.Log.Error("the database was set back to an older state (failover, restore): goes on from there, and passes over what the stream has", "shard", h.number, "position", s.pos.String())
	}
	s.mended = back != nil
	if err := e.whole(ctx, s, accepted); err != nil {
		return err
	}
	if err := s.reclaim(ctx, e.pool, accepted); err != nil {
		return err
	}
	if err := e.prune(ctx, s); err != nil {
		return err
	}
	last, err := lastNumber(ctx, e.pool) // of now: who stands by may have begun long ago
	if err != nil {
		return err
	}
	if position(last) < max(s.pos, s.seenTo) {
		return permanent(behind(e.r.Config.Name, s, last))
	}
	if err := e.shards.o.note(ctx, e.pool, s); err != nil {
		return err
	}
	if err := e.lot.load(ctx, s); err != nil {
		return err
	}
	h.s = s
	e.r.Log.Info("opened a shard", "shard", h.number, "position", s.pos.String(), "readBack", len(s.seen))
	return nil
}

// settle writes the markers that are due when nothing is under way, and the positions into the database for those who
// look there: more often when others hold shards, because then nobody knows all.
func (e *logEngine) settle(ctx context.Context) error {
	now := time.Now()
	if due := e.shards.due(now, e.pub.can.maxAge); len(due) > 0 {
		if _, err := e.shards.o.publish(context.WithoutCancel(ctx), nil, due); err != nil {
			return err
		}
		e.saved = time.Time{}
	}
	if every := e.saveEvery(); now.Sub(e.saved) < every {
		return nil
	}
	e.saved = now
	if err := savePositions(ctx, e.pool, e.shards.o, e.shards.sessions()...); err != nil {
		return err
	}
	return e.shards.o.note(ctx, e.pool, e.shards.sessions()...)
}

func (e *logEngine) saveEvery() time.Duration {
	if len(e.shards.held) < e.shards.count {
		return time.Second
	}
	return markAfter
}

// request is the next batch to read: those shards that stand at the same position, up to where the next ones stand.
type request struct {
	from, upto int64 // upto is 0 for no bound
	shards     uint64
}

func (e *logEngine) next() (request, []int) {
	var q request
	var list []int
	first := true
	for _, h := range e.shards.held {
		at := int64(h.s.pos)
		switch {
		case first || at < q.from:
			if !first {
				q.upto = q.from
			}
			q.from, list, first = at, []int{h.number}, false
		case at == q.from:
			list = append(list, h.number)
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
func (e *logEngine) step(ctx context.Context) (busy bool, rest time.Duration, err error) {
	rest = e.r.Config.Poll
	if len(e.shards.held) == 0 {
		return false, min(rest, time.Second), nil
	}
	wait, err := e.lot.retry(ctx)
	if err != nil {
		return false, 0, err
	}
	rest = min(rest, wait)
	q, list := e.next()
	got, err := e.take(ctx, q, list)
	if err != nil {
		return false, 0, err
	}
	if len(got.rows) == 0 {
		for _, n := range list { // nothing of theirs: those that are behind others are level with them now
			e.shards.held[n].s.pos = max(e.shards.held[n].s.pos, position(got.upto))
		}
		if got.wait > 0 {
			return false, min(rest, got.wait), nil
		}
		return q.upto > 0, rest, nil
	}
	last := got.rows[len(got.rows)-1].pos
	if got.full { // read on while these are published
		e.start(ctx, request{int64(last), q.upto, q.shards}, list)
	}
	e.r.at("read")
	if err := e.lot.deliver(ctx, got.rows, list, last); err != nil {
		return false, 0, err
	}
	return got.full || q.upto > 0, rest, nil
}

// start reads a batch beside what is going on.
func (e *logEngine) start(ctx context.Context, q request, list []int) {
	c := make(chan read, 1)
	e.ahead, e.aheadAt = c, q
	go func() { c <- e.reader.read(ctx, q, list, e.shards.count) }()
}

// take is the batch at q: the one that was read ahead, if it is that.
func (e *logEngine) take(ctx context.Context, q request, list []int) (read, error) {
	if e.ahead != nil && e.aheadAt != q {
		e.drop()
	}
	if e.ahead != nil {
		got := <-e.ahead
		e.ahead = nil
		if got.err != nil || got.wait == 0 {
			return got, got.err
		}
	}
	got := e.reader.read(ctx, q, list, e.shards.count)
	return got, got.err
}

// drop waits for what is read ahead and forgets it.
func (e *logEngine) drop() {
	if e.ahead != nil {
		<-e.ahead
		e.ahead = nil
	}
}
