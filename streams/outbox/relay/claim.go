package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bcc94042/instar/streams/outbox"
)

// claimEngine publishes rows that have a state. One relay is active at a time; a marker is written only when all that was
// stored before it is marked as sent, so what a session stored and could not mark any more is found behind the marker.
type claimEngine struct {
	r      *Relay
	store  *outbox.Store
	shards *shards
	pub    *publisher

	batch *outbox.Batch // published, and not yet marked as sent
	sent  []uuid.UUID
}

// serve waits for the lease, then claims, publishes and marks.
func (e *claimEngine) serve(ctx context.Context) error {
	for {
		e.shards.tend(ctx)
		if e.shards.held[0] != nil {
			break
		}
		if !sleep(ctx, min(e.r.Config.Poll, time.Second)) {
			return ctx.Err()
		}
	}
	h := e.shards.held[0]
	err := e.open(ctx, h)
	for err == nil {
		err = e.step(ctx)
	}
	switch {
	case errors.Is(err, ErrDrained), ctx.Err() != nil && !errors.Is(err, errDoubt):
		return e.leave(ctx, err)
	case errors.Is(err, errFenced):
		e.shards.yield(context.WithoutCancel(ctx))
	}
	return err
}

// open fences all others off, and marks what they stored.
func (e *claimEngine) open(ctx context.Context, h *shard) error {
	s, err := e.shards.o.open(ctx, 0, position{})
	if errors.Is(err, errForeign) {
		return permanent(err)
	}
	if err != nil {
		return err
	}
	ids := make([]uuid.UUID, 0, len(s.seen))
	for key := range s.seen {
		if id, err := uuid.Parse(key); err == nil {
			ids = append(ids, id)
		}
	}
	if err := e.store.Settle(ctx, ids); err != nil {
		return err
	}
	s.seen = nil
	h.s = s
	e.r.Log.Info("claims rows", "readBack", len(ids))
	return nil
}

// step is one turn: mark what was published, claim what is due, publish it.
func (e *claimEngine) step(ctx context.Context) error {
	e.shards.tend(ctx)
	h := e.shards.held[0]
	if h == nil || h.s == nil {
		return fmt.Errorf("%w: the lease was lost", errFenced)
	}
	e.r.stands(e.shards)
	paused, draining, changed := e.r.switches()
	if !paused {
		e.r.at("claim")
		next, lost, err := e.store.Turn(ctx, e.batch, e.sent, e.r.Node, e.r.Config.Batch)
		if err != nil {
			return err
		}
		if len(lost) > 0 { // a shorter lease than a publish: it is stored, and would be published again
			if err := e.store.Settle(ctx, lost); err != nil {
				return err
			}
		}
		e.batch, e.sent = next, nil
		if len(next.Rows) > 0 {
			if err := e.publish(ctx, h, next); err != nil {
				return err
			}
			return ctx.Err()
		}
		if draining && next.Postponed == 0 {
			return ErrDrained
		}
	} else if err := e.mark(ctx); err != nil {
		return err
	}
	// All that was published is marked now.
	if due := e.shards.due(time.Now(), e.pub.can.maxAge); len(due) > 0 {
		if _, err := e.pub.publish(context.WithoutCancel(ctx), nil, due); err != nil {
			return err
		}
	}
	e.r.well()
	t := time.NewTimer(e.r.Config.Poll)
	defer t.Stop()
	select {
	case <-e.r.wake:
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// publish stores a batch in order. What follows a refused row in its aggregate is given back untried.
func (e *claimEngine) publish(ctx context.Context, h *shard, b *outbox.Batch) error {
	ctx = context.WithoutCancel(ctx)
	var items []item
	var failures []outbox.Failure
	var behind []uuid.UUID
	bad := map[aggregate]bool{}
	fail := func(r *row, why error) {
		e.r.Log.Warn("a row cannot be published; its aggregate waits", "event", r.ID, "aggregate", r.AggregateType+"/"+r.AggregateID, "error", why)
		e.r.Meter.Parked("refused")
		bad[r.aggregate()] = true
		failures = append(failures, outbox.Failure{ID: r.ID, Error: clip(why.Error())})
	}
	for i := range b.Rows {
		c := &b.Rows[i]
		r := &row{Message: c.Message, attempts: c.Attempts, redrives: c.Redrives}
		if bad[r.aggregate()] {
			behind = append(behind, r.ID)
		} else if why := e.r.fits(e.pub.enc, r); why != nil {
			fail(r, why)
		} else {
			items = append(items, item{r, h.s})
		}
	}
	for len(items) > 0 {
		n := upTo(items, maxAtomic)
		began := time.Now()
		e.r.at("publish")
		stored, err := e.pub.publish(ctx, items[:n], nil)
		e.r.sent(stored, time.Since(began))
		h.s.rows += stored
		for _, it := range items[:stored] {
			e.sent = append(e.sent, it.row.ID)
		}
		var refused *refusedError
		if errors.As(err, &refused) {
			r := items[refused.index].row
			fail(r, refused.err)
			rest, left := without(items[refused.index+1:], r.aggregate())
			for _, r := range left {
				behind = append(behind, r.ID)
			}
			items = rest
			continue
		}
		if err != nil { // those that are stored are found in the stream
			_, errRelease := e.store.Release(ctx, b, b.IDs())
			return errors.Join(err, errRelease)
		}
		items = items[n:]
	}
	if len(failures) > 0 {
		if _, _, err := e.store.MarkFailed(ctx, b, failures); err != nil {
			return err
		}
	}
	if len(behind) > 0 {
		if _, err := e.store.Release(ctx, b, behind); err != nil {
			return err
		}
	}
	return nil
}

// mark says that what was published is sent.
func (e *claimEngine) mark(ctx context.Context) error {
	if len(e.sent) == 0 {
		return nil
	}
	lost, err := e.store.MarkSent(ctx, e.batch, e.sent)
	if err == nil && len(lost) > 0 {
		err = e.store.Settle(ctx, lost)
	}
	if err == nil {
		e.sent = nil
	}
	return err
}

// leave marks what was published and says in the stream that nothing is under way.
func (e *claimEngine) leave(ctx context.Context, why error) error {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	err := e.mark(stop)
	if err == nil {
		err = e.shards.finish(ctx)
	}
	if err != nil {
		e.r.Log.Warn("the next relay has to read back", "error", err)
	}
	return why
}
