package deliver

// From rows that were read to the stream, or to outbox_parked. Deliver, called by step (log/loop.go), leaves out rows that earlier sessions have stored or parked; it parks those
// that cannot be published or are not due yet (park), and those behind a parked row of their aggregate (wait), and stores the others with the markers that are due (store). What
// is parked is published by retry.go.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// Deliverer publishes rows that were read, and keeps aside the aggregates whose first row cannot be published.
//
// What makes it exact: a row is parked in the database before a marker says that the shard is past it, and a parked
// aggregate that was published is taken out of the database before the next marker is written. So whatever was stored
// and is not yet accounted for lies after the last marker, where the next session finds it.
type Deliverer struct {
	Control *control.Control
	Config  outbox.Config
	Pool    *pgxpool.Pool
	Shards  *shard.Set

	opened map[int]*history // by shard
	items  []sink.Item
	begun  bool // something is under way, or has failed: the positions of the sessions may be too high or too low

	parked map[sink.Aggregate]*parking // the first row of each aggregate that waits. After a change to fewer shards it may be in a shard that is not held
	due    []*parking                  // to be tried next, in this order
	next   time.Time                   // when more will be due; zero when none is known
	loaded time.Time                   // when due was last looked up
	took   time.Duration               // for that
}

// open is a shard that is held and open, or nil.
func (d *Deliverer) open(n int) *history {
	if d.Shards.Session(n) == nil {
		return nil
	}
	return d.opened[n]
}

// Begun says that something is under way, or has failed: it is not known what is stored.
func (d *Deliverer) Begun() bool { return d.begun }

// Deliver publishes rows of the shards in list, which then stand at last.
func (d *Deliverer) Deliver(ctx context.Context, rows []*sink.Row, list []int, last sink.Position) error {
	d.begun = true
	d.items = d.items[:0]
	counts := make(map[int]int, len(list))
	var waiting []*sink.Row
	for _, r := range rows {
		h := d.open(r.Shard)
		if h == nil {
			return fmt.Errorf("relay: row %s is of shard %d, which was not asked for", r.Key(), r.Shard)
		}
		if h.stored(r) {
			continue
		}
		if h.ahead(r.Pos, r.ID) { // it is parked, or was discarded since
			delete(h.aside, r.Pos)
			continue
		}
		if r.Later { // it asked to be overtaken
			if err := d.park(ctx, h, r, errNotYet); err != nil {
				return err
			}
			continue
		}
		if d.parked[r.Aggregate()] != nil {
			waiting = append(waiting, r)
			continue
		}
		if why := d.Shards.Opener.Pub.Fits(r); why != nil {
			if follows(d.items, r.Aggregate()) { // what is before it goes first
				if err := d.store(ctx, d.items, nil, d.refused); err != nil {
					return err
				}
				d.items = d.items[:0]
			}
			if d.parked[r.Aggregate()] != nil { // one of those was refused
				waiting = append(waiting, r)
			} else if err := d.park(ctx, h, r, why); err != nil {
				return err
			}
			continue
		}
		d.items = append(d.items, sink.Item{Row: r, Session: h.Session})
		counts[r.Shard]++
	}
	if err := d.wait(ctx, waiting); err != nil {
		return err
	}
	for _, n := range list {
		s := d.Shards.Session(n)
		s.Pos = last
		s.Rows += counts[n]
	}
	err := d.store(ctx, d.items, d.Shards.Due(), d.refused)
	d.begun = err != nil
	return err
}

// store publishes items in batches, and the markers with the last one. A row that the stream refuses is left out, with all that
// follows of its aggregate, and refused is called with them before anything else is published.
func (d *Deliverer) store(ctx context.Context, items []sink.Item, marks []*session.Session, refused func(ctx context.Context, r *sink.Row, why error, behind []*sink.Row) error) error {
	publish := func(ctx context.Context, items []sink.Item, last bool) (int, error) {
		return d.Control.Publish(items, func() (int, error) {
			if last {
				return d.Shards.Opener.Publish(ctx, items, marks)
			}
			return d.Shards.Opener.Publish(ctx, items, nil)
		})
	}
	return sink.Batches{Publish: publish, Refused: refused}.Store(ctx, items, len(marks))
}

// refused parks a row that the stream does not take, and what follows it.
func (d *Deliverer) refused(ctx context.Context, r *sink.Row, why error, behind []*sink.Row) error {
	if err := d.park(ctx, d.open(r.Shard), r, why); err != nil {
		return err
	}
	return d.wait(ctx, behind)
}

// errNotYet is why a row waits that is not to be published before a time.
var errNotYet = errors.New("not before its time")

// park sets an aggregate aside, in the database first.
func (d *Deliverer) park(ctx context.Context, h *history, r *sink.Row, why error) error {
	p, wait := parkingOf(r), d.backoff(1)
	p.attempts = 1
	if errors.Is(why, errNotYet) {
		p.attempts, wait = 0, 0
		d.Control.Meter.Parked("later")
	} else {
		d.Control.Log.Warn("a row cannot be published; its aggregate waits", "event", r.ID, "aggregate", r.AggregateType+"/"+r.AggregateID, "type", r.EventType, "error", why)
		d.Control.Meter.Parked("refused")
	}
	d.Control.At("park")
	left, err := insertParked(ctx, d.Pool, h.Session, p, r, wait, why.Error())
	if err != nil {
		return err
	}
	d.Control.At("parked")
	d.postpone(left)
	if !r.Later {
		d.keepAside(p)
	}
	return nil
}

// wait sets rows aside that follow a parked one.
func (d *Deliverer) wait(ctx context.Context, rows []*sink.Row) error {
	if len(rows) == 0 {
		return nil
	}
	of := map[int][]*sink.Row{}
	for _, r := range rows {
		of[r.Shard] = append(of[r.Shard], r)
	}
	d.Control.At("wait")
	for n, rows := range of {
		if err := insertWaiting(ctx, d.Pool, d.Shards.Session(n), rows); err != nil {
			return err
		}
	}
	d.Control.At("waited")
	return nil
}

// backoff is the wait after the n-th try.
func (d *Deliverer) backoff(n int) time.Duration {
	wait := d.Config.BaseBackoff
	for range n - 1 {
		if wait *= 2; wait >= d.Config.MaxBackoff {
			break
		}
	}
	return min(wait, d.Config.MaxBackoff)
}

func follows(items []sink.Item, a sink.Aggregate) bool {
	return slices.ContainsFunc(items, func(it sink.Item) bool { return it.Row.Aggregate() == a })
}
