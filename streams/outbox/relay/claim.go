package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/bcc94042/instar/streams/outbox"
)

// claimEngine publishes rows that have a state. One relay is active at a time. It has lanes, each with a part of the
// shards, so that one can claim while another publishes. A marker is written only when all that was stored before it is
// marked as sent, so what a session stored and could not mark any more is found behind the marker.
type claimEngine struct {
	r      *Relay
	store  *outbox.Store
	shards *shards
	pub    *publisher
	parts  int // shards of the rows

	gate  sync.RWMutex // closed while no lane may have anything under way
	press sync.Mutex   // held by the lane that publishes
	lanes []*lane
}

// lane claims, publishes and marks rows of its shards.
type lane struct {
	e      *claimEngine
	worker outbox.Worker
	shards []int
	wake   chan struct{}

	batch *outbox.Batch // published, and not yet marked as sent
	sent  []uuid.UUID
}

// maxLanes is how many lanes there are; the publishing is one.
const maxLanes = 3

// serve waits for the lease, then lets the lanes run until one of them fails.
func (e *claimEngine) serve(ctx context.Context) error {
	if err := e.shards.await(ctx, e.r.Config.Poll); err != nil {
		return err
	}
	err := e.open(ctx, e.shards.held[0])
	if err == nil {
		err = e.openLanes(ctx)
	}
	defer e.closeLanes()
	if err == nil {
		err = e.runLanes(ctx)
	}
	if errors.Is(err, ErrDrained) {
		err = e.drained(ctx)
	}
	return e.shards.ended(ctx, err, false, e.leave)
}

// openLanes spreads the shards over lanes. Each has a connection of its own for as long as it runs, so that a crash of the
// database, which may undo marks, does not go unnoticed.
func (e *claimEngine) openLanes(ctx context.Context) error {
	most := max(1, int(e.store.Pool.Config().MaxConns)-1) // one is for everything else
	n := min(maxLanes, e.parts, most)
	for i := range n {
		l := &lane{e: e, wake: make(chan struct{}, 1), worker: outbox.Worker{Store: e.store, Name: e.r.Node}}
		if err := l.worker.Open(ctx); err != nil {
			return err
		}
		e.lanes = append(e.lanes, l)
		for part := i; part < e.parts; part += n {
			l.shards = append(l.shards, part)
		}
	}
	return nil
}

func (e *claimEngine) closeLanes() {
	for _, l := range e.lanes {
		l.worker.Close()
	}
}

// runLanes returns when all lanes have ended: with the gravest error, or when all are drained.
func (e *claimEngine) runLanes(ctx context.Context) error {
	ended := make(chan error, len(e.lanes))
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, l := range e.lanes {
		go func() { ended <- l.run(inner) }()
	}
	tick := time.NewTicker(min(e.r.Config.Poll, time.Second))
	defer tick.Stop()
	var first error
	for left := len(e.lanes); left > 0; {
		_, _, changed := e.r.switches()
		select {
		case err := <-ended:
			left--
			first = graver(first, err)
			if !errors.Is(err, ErrDrained) {
				cancel()
			}
			continue
		case <-e.r.wake:
		case <-changed:
		case <-tick.C:
			first = graver(first, e.pause(inner, cancel))
			continue
		}
		for _, l := range e.lanes {
			select {
			case l.wake <- struct{}{}:
			default:
			}
		}
	}
	return first
}

// drained is ErrDrained, unless rows of former shards, which no lane claims, were made NEW again since the lanes were opened.
func (e *claimEngine) drained(ctx context.Context) error {
	now, err := readSettings(ctx, e.store.Pool)
	switch {
	case err != nil:
		return err
	case now.read > e.parts:
		return errSettings
	}
	return ErrDrained
}

// pause stops the lanes for a moment: to look after the lease, and to write the marker when it is due. When it fails none of
// them takes another step: the lease, and the session with it, may be gone.
func (e *claimEngine) pause(ctx context.Context, cancel func()) (err error) {
	e.gate.Lock()
	defer e.gate.Unlock()
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	if _, err := e.shards.tend(ctx); err != nil {
		return err
	}
	h := e.shards.held[0]
	if h == nil || h.s == nil {
		return fmt.Errorf("%w: the lease was lost", errFenced)
	}
	e.r.stands(e.shards)
	if !h.s.due(time.Now(), e.pub.can.maxAge) {
		return nil
	}
	if err := e.settle(ctx); err != nil {
		return err
	}
	if err := e.mark(ctx, h.s); err != nil {
		return err
	}
	if _, err := e.shards.o.publish(context.WithoutCancel(ctx), nil, []*session{h.s}); err != nil {
		return err
	}
	return e.shards.o.note(ctx, e.store.Pool, h.s)
}

// mark is the position of the next marker. All that is stored is marked as sent.
func (e *claimEngine) mark(ctx context.Context, s *session) error {
	at, err := e.sentUpTo(ctx)
	if err == nil && at > s.pos {
		s.pos = at
	}
	return err
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
		t := time.NewTimer(l.e.r.Config.Poll)
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
	paused, draining, _ := e.r.switches()
	if paused {
		return false, nil
	}
	e.gate.RLock()
	defer e.gate.RUnlock()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	e.r.at("claim")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // what was begun is ended
	defer cancel()
	next, lost, err := l.worker.Turn(ctx, l.batch, l.sent, l.shards, e.r.Config.Batch)
	if err != nil {
		return false, err
	}
	if len(lost) > 0 { // a publish took longer than the lease: it is stored, and would be published again
		if err := e.store.MarkStored(ctx, lost); err != nil {
			return false, err
		}
		next.Rows = slices.DeleteFunc(next.Rows, func(r outbox.Row) bool { return slices.Contains(lost, r.ID) }) // claimed once more in this turn
	}
	l.batch, l.sent = next, nil
	if len(next.Rows) > 0 {
		return true, l.publish(ctx, e.shards.held[0], next)
	}
	if draining && next.Postponed == 0 {
		return false, ErrDrained
	}
	e.r.well()
	return false, nil
}

// open fences all others off, and marks what they stored.
func (e *claimEngine) open(ctx context.Context, h *shard) error {
	_, err := e.shards.o.notSetBack(ctx, e.store.Pool, 0)
	if errors.Is(err, errSetBack) {
		return permanent(err)
	}
	if err != nil {
		return err
	}
	s, err := e.shards.o.open(ctx, 0, 0)
	if errors.Is(err, errForeign) {
		return permanent(err)
	}
	if err != nil {
		return err
	}
	if s.back {
		e.r.Log.Error("the database was set back to an older state (failover, restore): what the stream has is marked as sent")
	}
	ids := make([]uuid.UUID, 0, len(s.seen))
	for key := range s.seen {
		if id, err := uuid.Parse(key); err == nil {
			ids = append(ids, id)
		}
	}
	if err := e.whole(ctx, s, ids); err != nil {
		return err
	}
	if err := e.store.Settle(ctx, ids); err != nil {
		return err
	}
	if err := e.shards.o.note(ctx, e.store.Pool, s); err != nil {
		return err
	}
	s.seen = nil
	h.s = s
	e.r.Log.Info("claims rows", "readBack", len(ids))
	return nil
}

// publish stores a batch in order. What follows a refused row in its aggregate is given back untried.
func (l *lane) publish(ctx context.Context, h *shard, b *outbox.Batch) error {
	e := l.e
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
		e.press.Lock()
		stored, err := e.pub.publish(ctx, items[:n], nil)
		h.s.rows += stored
		e.press.Unlock()
		e.r.at("published")
		e.r.sent(items[:stored], time.Since(began))
		for _, it := range items[:stored] {
			l.sent = append(l.sent, it.row.ID)
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
		e.r.at("failed")
		if _, _, err := e.store.MarkFailed(ctx, b, failures); err != nil {
			return err
		}
	}
	if len(behind) > 0 {
		e.r.at("released")
		if _, err := e.store.Release(ctx, b, behind); err != nil {
			return err
		}
	}
	return nil
}

// mark says that what was published is sent.
func (l *lane) mark(ctx context.Context) error {
	if len(l.sent) == 0 {
		return nil
	}
	lost, err := l.worker.MarkSent(ctx, l.batch, l.sent)
	if err == nil && len(lost) > 0 {
		err = l.e.store.MarkStored(ctx, lost)
	}
	if err == nil {
		l.sent = nil
	}
	return err
}

// settle marks what was published, for good: a marker covers only what no crash of the database can undo.
func (e *claimEngine) settle(ctx context.Context) error {
	if len(e.lanes) == 0 {
		return nil
	}
	for _, l := range e.lanes {
		if err := l.mark(ctx); err != nil {
			return err
		}
	}
	return e.lanes[0].worker.Flush(ctx)
}

// leave marks what was published and says in the stream that nothing is under way.
func (e *claimEngine) leave(ctx context.Context, why error) error {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	err := e.settle(stop)
	h := e.shards.held[0]
	if err == nil && h != nil && h.s != nil {
		s := h.s
		if err = e.mark(stop, s); err == nil {
			err = errors.Join(e.shards.finish(ctx), e.shards.o.note(stop, e.store.Pool, s))
		}
	}
	if err != nil {
		e.r.Log.Warn("the next relay has to read back", "error", err)
	}
	return why
}
