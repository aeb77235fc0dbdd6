package deliver

// Parked aggregates, from Load, which reads them when a shard is opened, until their last row is published. Retry, called by step (log/loop.go) in each turn, asks the database
// what is due and what an operator has changed (look) and tries a batch of it (again): tries are counted, rows stored (try), and published rows deleted while the next row of
// each aggregate becomes its head, in one transaction (advance). The queries are in table.go.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// parking is an aggregate that waits behind one of its rows.
type parking struct {
	agg      sink.Aggregate
	shard    int
	pos      sink.Position // of its first row
	event    uuid.UUID     // its id
	attempts int
	later    bool // not before its time: it holds back nobody
	left     time.Duration
}

// parkingOf is the aggregate of a row, which waits behind it.
func parkingOf(r *sink.Row) *parking {
	return &parking{agg: r.Aggregate(), shard: r.Shard, pos: r.Pos, event: r.ID, attempts: r.Attempts}
}

// triedAtOnce is how many aggregates are tried in one batch, at most.
const triedAtOnce = 100

// dueAtOnce is how many heads of a shard are asked for, at most.
const dueAtOnce = 1000

// lookShare bounds the cost of finding what is due and what an operator has changed, where very many aggregates are parked: it takes at most the lookShare-th part of the time,
// as long as no operator waits for more than lookWithin.
const (
	lookShare  = 20
	lookWithin = 10 * time.Second
)

// Load reads what is parked of a shard that is being opened, and what was discarded. Until it has ended the session must not write a
// marker: what earlier ones published, and could not take out of the database any more, is accounted for here.
func (d *Deliverer) Load(ctx context.Context, n int) error {
	s := d.opened[n]
	behind, err := s.takeOut(ctx, d.Pool)
	if err != nil {
		return err
	}
	if err = s.putAside(ctx, d.Pool); err != nil {
		return err
	}
	list, err := selectHeads(ctx, d.Pool, sqlHeads, s.Shard)
	if err != nil {
		return err
	}
	maps.DeleteFunc(d.parked, func(_ sink.Aggregate, p *parking) bool { return p.shard == s.Shard })
	d.place(behind)
	d.place(list)
	d.loaded = time.Time{}      // what is due is asked for
	return s.spare(ctx, d.Pool) // after it was asked what is parked: what is discarded between is found by both
}

// place puts first rows of aggregates in their place, and returns those that wait behind another one.
func (d *Deliverer) place(list []*parking) (behind []*parking) {
	for _, p := range list {
		switch first := d.parked[p.agg]; {
		case p.later:
			d.postpone(p.left)
		case first == nil || p.pos <= first.pos:
			d.keepAside(p)
		default:
			behind = append(behind, p)
		}
	}
	return behind
}

// keepAside records the first row of an aggregate.
func (d *Deliverer) keepAside(p *parking) {
	if d.parked == nil {
		d.parked = map[sink.Aggregate]*parking{}
	}
	d.parked[p.agg] = p
}

// postpone sets when to look again, at the latest.
func (d *Deliverer) postpone(left time.Duration) {
	if at := time.Now().Add(left); d.next.IsZero() || at.Before(d.next) {
		d.next = at
	}
}

// look asks what is due, by the clock of the database, and what an operator has changed. It costs what is due, and one index lookup for each parked aggregate.
func (d *Deliverer) look(ctx context.Context) error {
	began := time.Now()
	var known []*parking
	var shards []int
	most := dueAtOnce
	for _, s := range d.Shards.Sessions() {
		shards = append(shards, s.Shard)
		most += len(d.opened[s.Shard].aside)
	}
	for agg, p := range d.parked {
		if d.open(p.shard) == nil && d.Shards.Live == d.Shards.Count { // the shard has gone, with all of the aggregate
			delete(d.parked, agg)
			continue
		}
		known = append(known, p)
	}
	if len(known) == 0 && (d.next.IsZero() || began.Before(d.next)) {
		d.loaded = began
		return nil
	}
	d.next, d.due = time.Time{}, nil
	if err := d.discarded(ctx, known); err != nil {
		return err
	}
	due, next, err := selectDue(ctx, d.Pool, shards, most)
	if err != nil {
		return err
	}
	if err := d.queue(ctx, due); err != nil {
		return err
	}
	if len(due) >= most {
		next = 0
	}
	d.postpone(next)
	d.loaded, d.took = time.Now(), time.Since(began)
	return nil
}

// queue makes the list of what is to be tried. A row whose time has come behind a parked one waits like all that follow it.
func (d *Deliverer) queue(ctx context.Context, due []*parking) error {
	behind := d.place(due)
	if err := unpromote(ctx, d.Pool, behind); err != nil {
		return err
	}
	for _, p := range due {
		switch {
		case d.open(p.shard).ahead(p.pos, p.event):
			d.postpone(d.Config.Poll)
		case d.parked[p.agg] == p:
			d.due = append(d.due, p)
		}
	}
	return nil
}

// discarded continues the aggregates whose first row an operator has removed at their next row.
func (d *Deliverer) discarded(ctx context.Context, known []*parking) error {
	gone, err := selectGone(ctx, d.Pool, known)
	if err != nil || len(gone) == 0 {
		return err
	}
	for _, p := range gone {
		delete(d.parked, p.agg)
	}
	list, err := promote(ctx, d.Pool, gone)
	if err != nil {
		return err
	}
	d.place(list)
	return nil
}

// Retry tries one batch of what is due, so that new rows do not have to wait for all of it, and returns how long until more is due: 0 for at once.
func (d *Deliverer) Retry(ctx context.Context) (time.Duration, error) {
	every := max(d.Config.Poll, min(lookShare*d.took, lookWithin))
	if time.Since(d.loaded) >= every || len(d.due) == 0 && !d.next.IsZero() && !time.Now().Before(d.next) {
		if err := d.look(ctx); err != nil {
			return 0, err
		}
	}
	d.due = slices.DeleteFunc(d.due, func(p *parking) bool { // of a shard that has gone
		return d.open(p.shard) == nil || d.parked[p.agg] != p
	})
	if len(d.due) > 0 {
		if err := d.again(ctx); err != nil {
			return 0, err
		}
	}
	wait := d.Config.Poll
	switch {
	case len(d.due) > 0:
		return 0, nil
	case !d.next.IsZero():
		wait = min(wait, max(time.Until(d.next), time.Millisecond))
	}
	return wait, nil
}

// refusal is a parked row that cannot be published.
type refusal struct {
	row *sink.Row
	why error
}

// again publishes a batch of what waits of the aggregates that are due, each in order until a row is refused. Those that have more
// are due again behind the others.
func (d *Deliverer) again(ctx context.Context) (err error) {
	d.begun = true
	defer func() { d.begun = err != nil }()
	some := d.due[:min(len(d.due), triedAtOnce)]
	d.due = d.due[len(some):]
	rows, err := selectWaiting(ctx, d.Pool, some, max(1, d.Config.Batch/len(some)))
	if err != nil {
		return err
	}
	rows, others := d.passed(rows)
	if err := d.follow(ctx, others); err != nil || len(rows) == 0 {
		return err
	}
	some = headsOf(some, rows)
	if err := countTries(ctx, d.Pool, some, d.backoff); err != nil {
		return err
	}
	d.Control.At("tried")
	done, refused, err := d.try(ctx, rows)
	if err != nil {
		return err
	}
	d.Control.At("published parked")
	more, err := d.advance(ctx, some, done, refused)
	if err != nil {
		return err
	}
	d.moved(some, refused, more)
	return nil
}

// passed leaves out rows that are read again, with all that follows of their aggregates: until then no marker is past them, and the
// next session would publish them once more. So it does with what follows rows of a shard that is not held, which go first; those are
// returned as well.
func (d *Deliverer) passed(rows []*sink.Row) (left, others []*sink.Row) {
	ahead := map[sink.Aggregate]bool{}
	for _, r := range rows {
		switch h := d.open(r.Shard); {
		case ahead[r.Aggregate()]:
			continue
		case h == nil:
			others = append(others, r)
		case h.ahead(r.Pos, r.ID):
			d.postpone(d.Config.Poll)
		default:
			left = append(left, r)
			continue
		}
		ahead[r.Aggregate()] = true
	}
	return left, others
}

// follow lets aggregates wait behind rows that another relay has parked.
func (d *Deliverer) follow(ctx context.Context, others []*sink.Row) error {
	var behind []*parking
	for _, r := range others {
		behind = append(behind, d.parked[r.Aggregate()])
		d.keepAside(parkingOf(r))
	}
	return unpromote(ctx, d.Pool, behind)
}

// headsOf are the aggregates of which there are rows.
func headsOf(list []*parking, rows []*sink.Row) []*parking {
	there := map[sink.Aggregate]bool{}
	for _, r := range rows {
		there[r.Aggregate()] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(p *parking) bool { return !there[p.agg] })
}

// try publishes rows, and returns those that are stored, and the first of each aggregate that was refused.
func (d *Deliverer) try(ctx context.Context, rows []*sink.Row) (done []*sink.Row, refused map[sink.Aggregate]refusal, err error) {
	refused = map[sink.Aggregate]refusal{}
	var list []sink.Item
	for _, r := range rows {
		if refused[r.Aggregate()].row != nil {
			continue
		}
		if why := d.Shards.Opener.Pub.Fits(r); why != nil {
			refused[r.Aggregate()] = refusal{r, why}
		} else {
			list = append(list, sink.Item{Row: r, Session: d.Shards.Session(r.Shard)})
		}
	}
	err = d.store(ctx, list, nil, func(_ context.Context, r *sink.Row, why error, _ []*sink.Row) error {
		refused[r.Aggregate()] = refusal{r, why}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for _, it := range list {
		if bad := refused[it.Row.Aggregate()].row; bad == nil || it.Row.Pos < bad.Pos {
			d.Shards.Session(it.Row.Shard).Rows++
			done = append(done, it.Row)
		}
	}
	return done, refused, nil
}

// advance takes out of the database what was published after the last marker, leaves the aggregates parked of which a row was
// refused, and returns the rows that are the first ones of the others now.
func (d *Deliverer) advance(ctx context.Context, some []*parking, done []*sink.Row, refused map[sink.Aggregate]refusal) (more []*parking, err error) {
	var others []*parking
	for _, p := range some {
		if refused[p.agg].row == nil {
			others = append(others, p)
		}
	}
	err = pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		if err := deletePublished(ctx, tx, done, func(r *sink.Row) uint64 { return d.Shards.Session(r.Shard).Guarded }); err != nil {
			return err
		}
		for _, p := range some {
			if bad := refused[p.agg]; bad.row != nil {
				if err := d.keep(ctx, tx, bad); err != nil {
					return err
				}
			}
		}
		more, err = promote(ctx, tx, others)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("relay: cannot move parked aggregates on: %w", err)
	}
	return more, nil
}

// keep leaves an aggregate parked at the row that was refused.
func (d *Deliverer) keep(ctx context.Context, tx pgx.Tx, bad refusal) error {
	r := bad.row
	state, wait := outbox.StateFailed, d.backoff(max(r.Attempts, 1))
	if r.Attempts >= d.Config.Attempts {
		state = outbox.StateDead
		d.Control.Log.Error("a row has failed its last attempt; its aggregate waits for an operator", "event", r.ID, "aggregate", r.AggregateType+"/"+r.AggregateID, "tries", r.Attempts, "error", bad.why)
	} else {
		d.postpone(wait)
	}
	d.keepAside(parkingOf(r))
	return updateFailed(ctx, tx, r, state, wait, bad.why.Error())
}

// moved records what has become of aggregates that were tried.
func (d *Deliverer) moved(some []*parking, refused map[sink.Aggregate]refusal, more []*parking) {
	for _, p := range some {
		if refused[p.agg].row == nil {
			delete(d.parked, p.agg)
		}
	}
	d.place(more)
	d.due = append(d.due, more...)
}
