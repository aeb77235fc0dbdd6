package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// lot publishes rows that were read, and keeps aside the aggregates whose first row cannot be published.
//
// What makes it exact: a row is parked in the database before a marker says that the shard is past it, and a parked
// aggregate that was published is taken out of the database before the next marker is written. So whatever was stored
// and is not yet accounted for lies after the last marker, where the next session finds it.
type lot struct {
	r      *Relay
	pool   *pgxpool.Pool
	shards *shards
	pub    *publisher

	items []item
	begun bool // something is under way, or has failed: the positions of the sessions may say too much or too little

	parked map[aggregate]*parking // the first row of each aggregate that waits. After a change to fewer shards it may be in a shard that is not held
	due    []*parking             // to be tried next, in this order
	next   time.Time              // when more will be due; zero when nobody knows of any
	loaded time.Time              // when it was looked what is due
	took   time.Duration          // that look
}

// deliver publishes rows of the shards in list, which then stand at last.
func (l *lot) deliver(ctx context.Context, rows []*row, list []int, last position) error {
	l.begun = true
	l.items = l.items[:0]
	counts := make(map[*shard]int, len(list))
	var waiting []*row
	for _, r := range rows {
		h := l.shards.held[r.shard]
		if h == nil {
			return fmt.Errorf("relay: row %s is of shard %d, which was not asked for", r.key(), r.shard)
		}
		if h.s.stored(r) {
			continue
		}
		if len(h.s.aside) > 0 && h.s.ahead(r.key(), r.ID.String()) { // it is parked, or was discarded since
			delete(h.s.aside, r.key())
			continue
		}
		if r.later { // it asked to be overtaken
			if err := l.park(ctx, h, r, errNotYet); err != nil {
				return err
			}
			continue
		}
		if l.parked[r.aggregate()] != nil {
			waiting = append(waiting, r)
			continue
		}
		if why := l.r.fits(l.pub.enc, r); why != nil {
			if follows(l.items, r.aggregate()) { // what is before it goes first
				if err := l.store(ctx, l.items, nil, l.refused); err != nil {
					return err
				}
				l.items = l.items[:0]
			}
			if l.parked[r.aggregate()] != nil { // one of those was refused
				waiting = append(waiting, r)
			} else if err := l.park(ctx, h, r, why); err != nil {
				return err
			}
			continue
		}
		l.items = append(l.items, item{r, h.s})
		counts[h]++
	}
	if err := l.wait(ctx, waiting); err != nil {
		return err
	}
	for _, n := range list {
		h := l.shards.held[n]
		h.s.pos = last
		h.s.rows += counts[h]
	}
	err := l.store(ctx, l.items, l.shards.due(time.Now(), l.pub.can.maxAge), l.refused)
	l.begun = err != nil
	return err
}

// store publishes items in batches, and the markers with the last one. A row that the stream refuses is left out, with all that
// follows of its aggregate, and refused is called with them before anything else is published.
func (l *lot) store(ctx context.Context, items []item, marks []*session, refused func(ctx context.Context, r *row, why error, behind []*row) error) error {
	ctx = context.WithoutCancel(ctx) // what was begun is ended: its outcome would be in doubt
	for len(items) > 0 || len(marks) > 0 {
		n := upTo(items, maxAtomic-len(marks))
		var with []*session
		if n == len(items) {
			with = marks
		}
		began := time.Now()
		l.r.at("publish")
		stored, err := l.shards.o.publish(ctx, items[:n], with)
		l.r.at("published")
		l.r.sent(items[:stored], time.Since(began))
		var bad *refusedError
		switch {
		case errors.As(err, &bad):
			r := items[bad.index].row
			var behind []*row
			items, behind = without(items[bad.index+1:], r.aggregate())
			if err := refused(ctx, r, bad.err, behind); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if items = items[n:]; len(with) > 0 {
			marks = nil
		}
	}
	return nil
}

// refused parks a row that the stream does not take, and what follows it.
func (l *lot) refused(ctx context.Context, r *row, why error, behind []*row) error {
	if err := l.park(ctx, l.shards.held[r.shard], r, why); err != nil {
		return err
	}
	return l.wait(ctx, behind)
}

// upTo is how many items make a batch.
func upTo(items []item, most int) int {
	bytes := 0
	for i, it := range items {
		if bytes += len(it.row.Payload); i > 0 && bytes > maxBytes || i == most {
			return i
		}
	}
	return len(items)
}

// without splits off what belongs to an aggregate.
func without(items []item, a aggregate) (rest []item, behind []*row) {
	for _, it := range items {
		if it.row.aggregate() == a {
			behind = append(behind, it.row)
		} else {
			rest = append(rest, it)
		}
	}
	return rest, behind
}

// errNotYet is why a row waits that is not to be published before a time.
var errNotYet = errors.New("not before its time")

// park keeps an aggregate aside, in the database first.
func (l *lot) park(ctx context.Context, h *shard, r *row, why error) error {
	p := &parking{agg: r.aggregate(), shard: h.number, key: r.key(), event: r.ID.String(), num: r.num, attempts: 1}
	wait := l.backoff(1)
	if errors.Is(why, errNotYet) {
		p.attempts, wait = 0, 0
		l.r.Meter.Parked("later")
	} else {
		l.r.Log.Warn("a row cannot be published; its aggregate waits", "event", r.ID, "aggregate", r.AggregateType+"/"+r.AggregateID, "type", r.EventType, "error", why)
		l.r.Meter.Parked("refused")
	}
	l.r.at("park")
	left, err := insertParked(ctx, l.pool, h.s, p, r, wait, why.Error())
	if err != nil {
		return err
	}
	l.r.at("parked")
	l.postpone(left)
	if !r.later {
		l.keepAside(p)
	}
	return nil
}

// wait keeps rows aside that follow a parked one.
func (l *lot) wait(ctx context.Context, rows []*row) error {
	if len(rows) == 0 {
		return nil
	}
	of := map[int][]*row{}
	for _, r := range rows {
		of[r.shard] = append(of[r.shard], r)
	}
	l.r.at("wait")
	for n, rows := range of {
		if err := insertWaiting(ctx, l.pool, l.shards.held[n].s, rows); err != nil {
			return err
		}
	}
	l.r.at("waited")
	return nil
}

// backoff is the wait after the n-th try.
func (l *lot) backoff(n int) time.Duration {
	d := l.r.Config.BaseBackoff
	for range n - 1 {
		if d *= 2; d >= l.r.Config.MaxBackoff {
			break
		}
	}
	return min(d, l.r.Config.MaxBackoff)
}
