package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/streams/outbox"
)

// parking is an aggregate that waits behind one of its rows.
type parking struct {
	agg      aggregate
	shard    int
	key      string // of its first row
	event    string // its id
	num      int64  // that this row is parked under
	attempts int
	later    bool // not before its time: it holds back nobody
	left     time.Duration
}

// parking is its aggregate, which waits behind it.
func (r *row) parking() *parking {
	return &parking{agg: r.aggregate(), shard: r.shard, key: r.key(), event: r.ID.String(), num: r.num, attempts: r.attempts}
}

// triedAtOnce is how many aggregates are tried in one batch, at most.
const triedAtOnce = 100

// dueAtOnce is how many heads of a shard are asked for, at most.
const dueAtOnce = 1000

// lookShare bounds the cost of looking for what is due and what an operator changed, where very many aggregates are parked: it takes
// at most one part of so many of the time, as long as no operator waits for more than lookWithin.
const (
	lookShare  = 20
	lookWithin = 10 * time.Second
)

// load reads what is parked of a shard that is being opened, and what was discarded. Until it has ended the session must not write a
// marker: what earlier ones published, and could not take out of the database any more, is accounted for here.
func (l *lot) load(ctx context.Context, s *session) error {
	behind, err := s.takeOut(ctx, l.pool)
	if err != nil {
		return err
	}
	if err = s.putAside(ctx, l.pool); err != nil {
		return err
	}
	list, err := selectHeads(ctx, l.pool, sqlHeads, s.shard)
	if err != nil {
		return err
	}
	maps.DeleteFunc(l.parked, func(_ aggregate, p *parking) bool { return p.shard == s.shard })
	l.take(behind)
	l.take(list)
	l.loaded = time.Time{}      // what is due is asked for
	return s.spare(ctx, l.pool) // after it was asked what is parked: what is discarded between is found by both
}

// take puts first rows of aggregates in their place, and returns those that wait behind another one.
func (l *lot) take(list []*parking) (behind []*parking) {
	for _, p := range list {
		switch first := l.parked[p.agg]; {
		case p.later:
			l.postpone(p.left)
		case first == nil || p.num <= first.num:
			l.keepAside(p)
		default:
			behind = append(behind, p)
		}
	}
	return behind
}

// keepAside notes the first row of an aggregate.
func (l *lot) keepAside(p *parking) {
	if l.parked == nil {
		l.parked = map[aggregate]*parking{}
	}
	l.parked[p.agg] = p
}

// postpone says when to look again, at the latest.
func (l *lot) postpone(left time.Duration) {
	if at := time.Now().Add(left); l.next.IsZero() || at.Before(l.next) {
		l.next = at
	}
}

// look asks what is due, by the clock of the database, and what an operator changed. It costs what is due, and one look at an index
// for each aggregate that is parked.
func (l *lot) look(ctx context.Context) error {
	began := time.Now()
	var known []*parking
	var shards []int
	for n := range l.shards.held {
		shards = append(shards, n)
	}
	for agg, p := range l.parked {
		if l.shards.open(p.shard) == nil && l.shards.live == l.shards.count { // the shard has gone, with all of the aggregate
			delete(l.parked, agg)
			continue
		}
		known = append(known, p)
	}
	if len(known) == 0 && (l.next.IsZero() || began.Before(l.next)) {
		l.loaded = began
		return nil
	}
	l.next, l.due = time.Time{}, nil
	if err := l.discarded(ctx, known); err != nil {
		return err
	}
	most := dueAtOnce
	for _, h := range l.shards.held {
		most += len(h.s.aside)
	}
	due, err := selectHeads(ctx, l.pool, sqlDue, shards, most)
	if err != nil {
		return err
	}
	if err := l.queue(ctx, due); err != nil {
		return err
	}
	next, err := nextDue(ctx, l.pool, shards)
	if err != nil {
		return err
	}
	if len(due) >= most {
		next = 0
	}
	l.postpone(next)
	l.loaded, l.took = time.Now(), time.Since(began)
	return nil
}

// queue makes the list of what is to be tried. A row whose time has come behind a parked one waits like all that follow it.
func (l *lot) queue(ctx context.Context, due []*parking) error {
	behind := l.take(due)
	if err := unpromote(ctx, l.pool, behind); err != nil {
		return err
	}
	for _, p := range due {
		switch h := l.shards.held[p.shard]; {
		case h.s.ahead(p.key, p.event):
			l.postpone(l.r.Config.Poll)
		case l.parked[p.agg] == p:
			l.due = append(l.due, p)
		}
	}
	return nil
}

// discarded goes on with the aggregates whose first row an operator has removed.
func (l *lot) discarded(ctx context.Context, known []*parking) error {
	gone, err := selectGone(ctx, l.pool, known)
	if err != nil || len(gone) == 0 {
		return err
	}
	for _, p := range gone {
		delete(l.parked, p.agg)
	}
	list, err := promote(ctx, l.pool, gone)
	if err != nil {
		return err
	}
	l.take(list)
	return nil
}

// retry tries a batch of what is due again, so that everything else goes on meanwhile, and returns how long until more is: 0 for at
// once.
func (l *lot) retry(ctx context.Context) (time.Duration, error) {
	every := max(l.r.Config.Poll, min(lookShare*l.took, lookWithin))
	if time.Since(l.loaded) >= every || len(l.due) == 0 && !l.next.IsZero() && !time.Now().Before(l.next) {
		if err := l.look(ctx); err != nil {
			return 0, err
		}
	}
	l.due = slices.DeleteFunc(l.due, func(p *parking) bool { // of a shard that has gone
		return l.shards.open(p.shard) == nil || l.parked[p.agg] != p
	})
	if len(l.due) > 0 {
		if err := l.again(ctx); err != nil {
			return 0, err
		}
	}
	wait := l.r.Config.Poll
	switch {
	case len(l.due) > 0:
		return 0, nil
	case !l.next.IsZero():
		wait = min(wait, max(time.Until(l.next), time.Millisecond))
	}
	return wait, nil
}

// refusal is a parked row that cannot be published.
type refusal struct {
	row *row
	why error
}

// again publishes a batch of what waits of the aggregates that are due, each in order until a row is refused. Those that have more
// are due again behind the others.
func (l *lot) again(ctx context.Context) (err error) {
	l.begun = true
	defer func() { l.begun = err != nil }()
	some := l.due[:min(len(l.due), triedAtOnce)]
	l.due = l.due[len(some):]
	rows, err := selectWaiting(ctx, l.pool, some, max(1, l.r.Config.Batch/len(some)))
	if err != nil {
		return err
	}
	rows, others := l.passed(rows)
	if err := l.follow(ctx, others); err != nil || len(rows) == 0 {
		return err
	}
	some = headsOf(some, rows)
	if err := countTries(ctx, l.pool, some, l.backoff); err != nil {
		return err
	}
	l.r.at("tried")
	done, refused, err := l.try(ctx, rows)
	if err != nil {
		return err
	}
	l.r.at("published parked")
	more, err := l.advance(ctx, some, done, refused)
	if err != nil {
		return err
	}
	l.moved(some, refused, more)
	return nil
}

// passed leaves out rows that are read again, with all that follows of their aggregates: until then no marker is past them, and the
// next session would publish them once more. So it does with what follows rows of a shard that is not held, which go first; those are
// returned as well.
func (l *lot) passed(rows []*row) (left, others []*row) {
	ahead := map[aggregate]bool{}
	for _, r := range rows {
		switch h := l.shards.open(r.shard); {
		case ahead[r.aggregate()]:
			continue
		case h == nil:
			others = append(others, r)
		case h.s.ahead(r.key(), r.ID.String()):
			l.postpone(l.r.Config.Poll)
		default:
			left = append(left, r)
			continue
		}
		ahead[r.aggregate()] = true
	}
	return left, others
}

// follow lets aggregates wait behind rows that another relay has parked.
func (l *lot) follow(ctx context.Context, others []*row) error {
	var behind []*parking
	for _, r := range others {
		behind = append(behind, l.parked[r.aggregate()])
		l.keepAside(r.parking())
	}
	return unpromote(ctx, l.pool, behind)
}

// headsOf are the aggregates of which there are rows.
func headsOf(list []*parking, rows []*row) []*parking {
	there := map[aggregate]bool{}
	for _, r := range rows {
		there[r.aggregate()] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(p *parking) bool { return !there[p.agg] })
}

// try publishes rows, and returns those that are stored, and the first of each aggregate that was refused.
func (l *lot) try(ctx context.Context, rows []*row) (done []*row, refused map[aggregate]refusal, err error) {
	refused = map[aggregate]refusal{}
	var list []item
	for _, r := range rows {
		if refused[r.aggregate()].row != nil {
			continue
		}
		if why := l.r.fits(l.pub.enc, r); why != nil {
			refused[r.aggregate()] = refusal{r, why}
		} else {
			list = append(list, item{r, l.shards.held[r.shard].s})
		}
	}
	err = l.store(ctx, list, nil, func(_ context.Context, r *row, why error, _ []*row) error {
		refused[r.aggregate()] = refusal{r, why}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for _, it := range list {
		if bad := refused[it.row.aggregate()].row; bad == nil || it.row.num < bad.num {
			it.s.rows++
			done = append(done, it.row)
		}
	}
	return done, refused, nil
}

// advance takes out of the database what was published after the last marker, leaves the aggregates parked of which a row was
// refused, and returns the rows that are the first ones of the others now.
func (l *lot) advance(ctx context.Context, some []*parking, done []*row, refused map[aggregate]refusal) (more []*parking, err error) {
	var others []*parking
	for _, p := range some {
		if refused[p.agg].row == nil {
			others = append(others, p)
		}
	}
	err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		if err := deletePublished(ctx, tx, done, func(r *row) uint64 { return l.shards.held[r.shard].s.guarded }); err != nil {
			return err
		}
		for _, p := range some {
			if bad := refused[p.agg]; bad.row != nil {
				if err := l.keep(ctx, tx, bad); err != nil {
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
func (l *lot) keep(ctx context.Context, tx pgx.Tx, bad refusal) error {
	r := bad.row
	state, wait := outbox.StateFailed, l.backoff(max(r.attempts, 1))
	if r.attempts >= l.r.Config.Attempts {
		state = outbox.StateDead
		l.r.Log.Error("a row was tried often enough; its aggregate waits for an operator", "event", r.ID, "aggregate", r.AggregateType+"/"+r.AggregateID, "tries", r.attempts, "error", bad.why)
	} else {
		l.postpone(wait)
	}
	l.keepAside(r.parking())
	return updateFailed(ctx, tx, r, state, wait, bad.why.Error())
}

// moved notes what has become of aggregates that were tried.
func (l *lot) moved(some []*parking, refused map[aggregate]refusal, more []*parking) {
	for _, p := range some {
		if refused[p.agg].row == nil {
			delete(l.parked, p.agg)
		}
	}
	l.take(more)
	l.due = append(l.due, more...)
}
