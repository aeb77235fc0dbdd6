package claim

// One lane of mode claim. run, started by runLanes (lanes.go), repeats step: one transaction marks the rows of the last turn as sent and claims the next ones (Worker.Turn),
// which publish then stores in order through package sink. Refused rows are marked as failed, and those behind them in their aggregates released; what was stored is marked in
// the next turn, or by flush (lanes.go).

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// lane claims, publishes and marks rows of its shards.
type lane struct {
	e      *Lanes
	worker outbox.Worker
	shards []int
	wake   chan struct{}

	batch *outbox.Batch // published, and not yet marked as sent
	sent  []uuid.UUID
}

func (l *lane) run(ctx context.Context) error {
	for {
		more, err := l.step(ctx)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		t := time.NewTimer(l.e.Config.Poll)
		select {
		case <-l.wake:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// step is one turn: mark what was published, claim what is due, publish it. It reports whether there may be more at once.
func (l *lane) step(ctx context.Context) (more bool, err error) {
	e := l.e
	paused, draining, _ := e.Control.Switches()
	if paused {
		return false, nil
	}
	e.gate <- struct{}{}
	defer func() { <-e.gate }()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	e.Control.At("claim")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), control.QueryTimeout) // what was begun is finished
	defer cancel()
	next, lost, err := l.worker.Turn(ctx, l.batch, l.sent, l.shards, e.Config.Batch)
	if err != nil {
		return false, err
	}
	if len(lost) > 0 { // a publish took longer than the lease: it is stored, and would be published again
		if err := e.Store.MarkStored(ctx, lost); err != nil {
			return false, err
		}
		next.Rows = slices.DeleteFunc(next.Rows, func(r outbox.Row) bool { return slices.Contains(lost, r.ID) }) // claimed once more in this turn
	}
	l.batch, l.sent = next, nil
	if len(next.Rows) > 0 {
		return true, l.publish(context.WithoutCancel(ctx), next)
	}
	if draining && next.Postponed == 0 {
		return false, errDrained
	}
	e.Control.Problem(nil)
	return false, nil
}

// publish stores a batch in order. What follows a refused row in its aggregate is given back untried.
func (l *lane) publish(ctx context.Context, b *outbox.Batch) error {
	e, s := l.e, l.e.Shards.Session(0)
	var items []sink.Item
	var failures []outbox.Failure
	var behind []uuid.UUID
	bad := map[sink.Aggregate]bool{}
	fail := func(r *sink.Row, why error) {
		e.Control.Log.Warn("a row cannot be published; its aggregate waits", "event", r.ID, "aggregate", r.AggregateType+"/"+r.AggregateID, "error", why)
		e.Control.Meter.Parked("refused")
		bad[r.Aggregate()] = true
		failures = append(failures, outbox.Failure{ID: r.ID, Error: sink.Reason(why.Error())})
	}
	for i := range b.Rows {
		c := &b.Rows[i]
		r := &sink.Row{Message: c.Message, Attempts: c.Attempts, Redrives: c.Redrives}
		if bad[r.Aggregate()] {
			behind = append(behind, r.ID)
		} else if why := e.Shards.Opener.Pub.Fits(r); why != nil {
			fail(r, why)
		} else {
			items = append(items, sink.Item{Row: r, Session: s})
		}
	}
	err := sink.Batches{
		Publish: func(ctx context.Context, items []sink.Item, _ bool) (int, error) { return l.store(ctx, s, items) },
		Refused: func(_ context.Context, r *sink.Row, why error, left []*sink.Row) error {
			fail(r, why)
			for _, r := range left {
				behind = append(behind, r.ID)
			}
			return nil
		},
	}.Store(ctx, items, 0)
	if err != nil { // those that were stored are found in the stream by the next session
		_, errRelease := e.Store.Release(ctx, b, b.IDs())
		return errors.Join(err, errRelease)
	}
	if len(failures) > 0 {
		e.Control.At("failed")
		if _, _, err := e.Store.MarkFailed(ctx, b, failures); err != nil {
			return err
		}
	}
	if len(behind) > 0 {
		e.Control.At("released")
		if _, err := e.Store.Release(ctx, b, behind); err != nil {
			return err
		}
	}
	return nil
}

// store publishes some rows, while no other lane does.
func (l *lane) store(ctx context.Context, s *session.Session, items []sink.Item) (int, error) {
	stored, err := l.e.Control.Publish(items, func() (int, error) {
		l.e.press <- struct{}{}
		defer func() { <-l.e.press }()
		stored, err := l.e.Shards.Opener.Pub.Publish(ctx, items, nil)
		s.Rows += stored
		return stored, err
	})
	for _, it := range items[:stored] {
		l.sent = append(l.sent, it.Row.ID)
	}
	return stored, err
}

// mark marks what was published as sent.
func (l *lane) mark(ctx context.Context) error {
	if len(l.sent) == 0 {
		return nil
	}
	lost, err := l.worker.MarkSent(ctx, l.batch, l.sent)
	if err == nil && len(lost) > 0 {
		err = l.e.Store.MarkStored(ctx, lost)
	}
	if err == nil {
		l.sent = nil
	}
	return err
}

// graver returns the error, of those with which two lanes have ended, that counts for both: that of a batch in doubt must not be hidden by that of a lane that was stopped.
func graver(a, b error) error {
	grave := func(err error) int {
		for i, kind := range []error{sink.ErrFenced, sink.ErrUnknown} {
			if errors.Is(err, kind) {
				return 5 - i
			}
		}
		switch {
		case err == nil:
			return 0
		case errors.Is(err, errDrained):
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
