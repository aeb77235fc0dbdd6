package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
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

	items  []item
	begun  bool // something is under way, or has failed: the positions of the sessions may say too much or too little
	loaded time.Time
	later  time.Time // when the next row is due that is not to be published before; zero for none
	number int64     // of the row that was parked last, where rows have no numbers of their own
}

// parking is an aggregate that waits behind one of its rows.
type parking struct {
	agg      aggregate
	shard    int
	key      string // of its first row
	event    string // its id
	num      int64  // that this row is parked under
	state    string
	attempts int
	later    bool      // not before its time: it holds back nobody
	due      time.Time // by this machine's monotonic clock, from an interval of the database's
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
		if r.later { // it asked to be overtaken
			if err := l.park(ctx, h, r, errNotYet); err != nil {
				return err
			}
			continue
		}
		if len(h.parked) > 0 && h.parked[r.aggregate()] != nil {
			waiting = append(waiting, r)
			continue
		}
		if why := l.r.fits(l.pub.enc, r); why != nil {
			if follows(l.items, r.aggregate()) { // what is before it goes first
				if err := l.send(ctx, l.items, nil); err != nil {
					return err
				}
				l.items = l.items[:0]
			}
			if h.parked[r.aggregate()] != nil { // one of those was refused
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
	err := l.send(ctx, l.items, l.shards.due(time.Now(), l.pub.can.maxAge))
	l.begun = err != nil
	return err
}

// send publishes items in batches, and the markers with the last one. Rows that the stream refuses are parked, and what
// follows of their aggregates stays behind with them.
func (l *lot) send(ctx context.Context, items []item, marks []*session) error {
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
		l.r.sent(stored, time.Since(began))
		var refused *refusedError
		switch {
		case errors.As(err, &refused):
			bad := items[refused.index]
			if err := l.park(ctx, l.shards.held[bad.row.shard], bad.row, refused.err); err != nil {
				return err
			}
			var behind []*row
			items, behind = without(items[refused.index+1:], bad.row.aggregate())
			if err := l.wait(ctx, behind); err != nil {
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
	l.enumerate(r)
	p := &parking{agg: r.aggregate(), shard: h.number, key: r.key(), event: r.ID.String(), num: r.num, state: outbox.StateFailed, attempts: 1}
	wait := l.backoff(1)
	if errors.Is(why, errNotYet) {
		p.attempts, wait = 0, 0
		l.r.Meter.Parked("later")
	} else {
		l.r.Log.Warn("a row cannot be published; its aggregate waits", "event", r.ID, "aggregate", r.AggregateType+"/"+r.AggregateID, "type", r.EventType, "error", why)
		l.r.Meter.Parked("refused")
	}
	left, err := insertParked(ctx, l.pool, h.s, p, r, wait, why.Error())
	if err != nil {
		return err
	}
	p.due = time.Now().Add(left)
	if r.later {
		l.postpone(p.due)
	} else {
		h.parked[p.agg] = p
	}
	return nil
}

func (l *lot) postpone(until time.Time) {
	if l.later.IsZero() || until.Before(l.later) {
		l.later = until
	}
}

// take puts what was read from outbox_parked of some shards in its place: the first row of an aggregate stands for it. What an
// earlier session published, and could not take out of the database any more, is due at once, whatever state it is in: the
// session is not settled before.
func (l *lot) take(list []*parking, of ...*shard) {
	for _, h := range of {
		h.parked, h.s.owed = map[aggregate]*parking{}, map[aggregate]bool{}
	}
	for _, p := range list {
		h := l.shards.held[p.shard]
		if there, ok := h.s.seen[p.key]; ok && there.id == p.event {
			p.due, p.state = time.Now(), outbox.StateFailed
			h.s.owed[p.agg] = true
		}
		switch first := h.parked[p.agg]; {
		case p.later:
			l.postpone(p.due)
		case first == nil || p.num < first.num:
			h.parked[p.agg] = p
		}
	}
}

// wait keeps rows aside that follow a parked one.
func (l *lot) wait(ctx context.Context, rows []*row) error {
	l.enumerate(rows...)
	of := map[int][]*row{}
	for _, r := range rows {
		of[r.shard] = append(of[r.shard], r)
	}
	for n, rows := range of {
		if err := insertWaiting(ctx, l.pool, l.shards.held[n].s, rows); err != nil {
			return err
		}
	}
	return nil
}

// enumerate gives rows from the WAL numbers to be parked under, in the order of their commits.
func (l *lot) enumerate(rows ...*row) {
	for _, r := range rows {
		if r.num == 0 {
			l.number++
			r.num = l.number
		}
	}
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

// load reads what is parked of a shard that was opened.
func (l *lot) load(ctx context.Context, h *shard) error {
	if err := promoteParked(ctx, l.pool, []int{h.number}); err != nil {
		return err
	}
	var err error
	if l.number, err = lastParked(ctx, l.pool); err != nil {
		return err
	}
	list, err := selectParked(ctx, l.pool, []int{h.number})
	if err != nil {
		return err
	}
	l.take(list, h)
	return nil
}

// reload notices what an operator changed: a redriven row is due, behind a discarded one the next is.
func (l *lot) reload(ctx context.Context) error {
	l.loaded = time.Now()
	list := make([]int, 0, len(l.shards.held))
	parked := 0
	for n, h := range l.shards.held {
		list = append(list, n)
		parked += len(h.parked)
	}
	due := !l.later.IsZero() && !time.Now().Before(l.later)
	if parked == 0 && !due {
		return nil
	}
	l.later = time.Time{}
	if err := promoteParked(ctx, l.pool, list); err != nil {
		return err
	}
	all, err := selectParked(ctx, l.pool, list)
	if err != nil {
		return err
	}
	l.take(all, slices.Collect(maps.Values(l.shards.held))...)
	return nil
}

// retry tries what is due again and returns how long until the next is.
func (l *lot) retry(ctx context.Context) (time.Duration, error) {
	if time.Since(l.loaded) >= l.r.Config.Poll || !l.later.IsZero() && !time.Now().Before(l.later) {
		if err := l.reload(ctx); err != nil {
			return 0, err
		}
	}
	wait := l.r.Config.Poll
	if !l.later.IsZero() {
		wait = min(wait, max(time.Until(l.later), time.Millisecond))
	}
	for _, h := range l.shards.held {
		for _, p := range h.parked {
			if p.state == outbox.StateDead {
				continue
			}
			if left := time.Until(p.due); left > 0 {
				wait = min(wait, left)
				continue
			}
			if err := l.again(ctx, h, p); err != nil {
				return 0, err
			}
		}
	}
	return wait, nil
}

// again publishes what is parked of an aggregate, in order, until all of it is published or a row is refused.
func (l *lot) again(ctx context.Context, h *shard, p *parking) (err error) {
	l.begun = true
	defer func() {
		if err == nil {
			l.begun = false
			delete(h.s.owed, p.agg)
		}
	}()
	if err := countTry(ctx, l.pool, p, l.backoff(p.attempts+1)); err != nil {
		return err
	}
	for {
		rows, err := selectWaiting(ctx, l.pool, p)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			delete(h.parked, p.agg)
			return nil
		}
		done, why, err := l.try(ctx, h, rows)
		if err != nil {
			return err
		}
		if done < len(rows) {
			return l.keep(ctx, h, p, rows[:done], rows[done:], why)
		}
		l.r.at("published parked")
		if err := advanceParked(ctx, l.pool, h.s, rows, nil, "", 0, ""); err != nil {
			return err
		}
	}
}

// try publishes rows of one aggregate until one of them is refused; why says for what reason.
func (l *lot) try(ctx context.Context, h *shard, rows []*row) (done int, why, err error) {
	for i, r := range rows {
		if h.s.stored(r) {
			continue
		}
		if why := l.r.fits(l.pub.enc, r); why != nil {
			return i, why, nil
		}
		began := time.Now()
		_, err := l.pub.publish(context.WithoutCancel(ctx), []item{{r, h.s}}, nil)
		var refused *refusedError
		if errors.As(err, &refused) {
			return i, refused.err, nil
		}
		if err != nil {
			return i, nil, err
		}
		h.s.rows++
		l.r.sent(1, time.Since(began))
	}
	return len(rows), nil, nil
}

// keep leaves an aggregate parked at the row that was refused.
func (l *lot) keep(ctx context.Context, h *shard, p *parking, done, left []*row, why error) error {
	r := left[0]
	if r.num != p.num { // its first try
		r.attempts++
	}
	state := outbox.StateFailed
	if r.attempts >= l.r.Config.Attempts {
		state = outbox.StateDead
		l.r.Log.Error("a row was tried often enough; its aggregate waits for an operator", "event", r.ID, "aggregate", r.AggregateType+"/"+r.AggregateID, "tries", r.attempts, "error", why)
	}
	wait := l.backoff(max(r.attempts, 1))
	p.key, p.event, p.num, p.state, p.attempts, p.due = r.key(), r.ID.String(), r.num, state, r.attempts, time.Now().Add(wait)
	return advanceParked(ctx, l.pool, h.s, done, left, state, wait, why.Error())
}
