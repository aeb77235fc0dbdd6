package deliver

// Queries of outbox_parked, for deliver.go, retry.go and late.go. The first row of each parked aggregate is its head, with the time of its next try; the rows behind it have
// none. insertParked and insertWaiting add rows as long as the session is the last one of its shard; promote finds or makes heads, and deletePublished moves rows to outbox_late.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

const sqlInsertParked = `
	insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before, state, attempts, next_retry_at, last_error)
	select r.*, @state, @attempts, case when @state = 'NEW' then coalesce(r.not_before, now()) else now() + @wait * interval '1 second' end, nullif(@why, '')
	from ` + session.Entered + `, (select shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before from outbox_log where seq = @seq and event_id = @id) as r
	returning case when next_retry_at = 'infinity' then 1e9 else extract(epoch from next_retry_at - now()) end`

// insertParked puts the first row of an aggregate aside and returns how long it waits.
func insertParked(ctx context.Context, pool *pgxpool.Pool, s *session.Session, p *parking, r *sink.Row, wait time.Duration, why string) (time.Duration, error) {
	args := s.Args()
	args["seq"], args["id"] = int64(r.Pos), r.ID
	args["state"], args["attempts"], args["wait"], args["why"] = outbox.StateFailed, p.attempts, wait.Seconds(), sink.Reason(why)
	if r.Later {
		args["state"], args["why"] = outbox.StateNew, ""
	}
	var left float64
	err := pool.QueryRow(ctx, sqlInsertParked, args).Scan(&left)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("%w: shard %d parks nothing more", sink.ErrFenced, s.Shard)
	}
	if err != nil {
		return 0, fmt.Errorf("relay: cannot park %s/%s: %w", r.AggregateType, r.AggregateID, err)
	}
	return time.Duration(left * float64(time.Second)), nil
}

const sqlInsertWaiting = `
	insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before, state) select r.*, 'NEW' from ` + session.Entered + `,
		(select l.shard, l.seq, l.event_id, l.day, l.aggregate_type, l.aggregate_id, l.event_type, l.not_before
			from unnest(@seqs::bigint[], @ids::uuid[]) as w (seq, event_id) cross join lateral (select * from outbox_log l where l.seq = w.seq and l.event_id = w.event_id limit 1) as l) as r`

// insertWaiting puts rows of a shard aside that follow parked ones.
func insertWaiting(ctx context.Context, pool *pgxpool.Pool, s *session.Session, rows []*sink.Row) error {
	batch := &pgx.Batch{} // one transaction: what it reads first stays locked
	entered := false
	batch.Queue(`select true from `+session.Entered, s.Args()).Query(func(rows pgx.Rows) error {
		entered = rows.Next()
		return rows.Err()
	})
	seqs, ids := make([]int64, len(rows)), make([]uuid.UUID, len(rows))
	for i, r := range rows {
		seqs[i], ids[i] = int64(r.Pos), r.ID
	}
	args := s.Args()
	args["seqs"], args["ids"] = seqs, ids
	batch.Queue(sqlInsertWaiting, args)
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot park rows behind others: %w", err)
	}
	if !entered {
		return fmt.Errorf("%w: shard %d parks nothing more", sink.ErrFenced, s.Shard)
	}
	return nil
}

// The first row of each parked aggregate has a time when it is due: it is the head. What follows it has none.
const (
	head = `shard, seq, event_id, aggregate_type, aggregate_id, attempts, coalesce(not_before > now(), false),
			case when next_retry_at = 'infinity' then 1e9 else extract(epoch from next_retry_at - now())::float8 end`

	// What is due, longest ago first.
	sqlDue = `select ` + head + ` from unnest($1::smallint[]) as s (n) cross join lateral (
			select * from outbox_parked where shard = s.n and next_retry_at <= now() and not coalesce(not_before > now(), false) order by next_retry_at limit $2) as p
		order by next_retry_at`

	// When the next one is, of those that have a time.
	sqlNext = `select coalesce(min(extract(epoch from p.next_retry_at - now())), 1e9)::float8 from unnest($1::smallint[]) as s (n) cross join lateral (
			select next_retry_at from outbox_parked where shard = s.n and next_retry_at > now() and next_retry_at < 'infinity' order by next_retry_at limit 1) as p`

	// Which of these heads are gone, by their places in the lists.
	sqlGone = `select k.nth from unnest($1::smallint[], $2::bigint[]) with ordinality as k (shard, seq, nth)
		left join lateral (select true as there from outbox_parked p where p.shard = k.shard and p.seq = k.seq and p.next_retry_at is not null limit 1) as p on true
		where p.there is null`

	first = `cross join lateral (select q.shard as part, q.seq as num from outbox_parked q
			where q.aggregate_id = a.id and q.aggregate_type = a.type and not coalesce(q.not_before > now(), false) order by q.seq limit 1) as f`

	// The heads of these aggregates: their first rows become heads.
	sqlPromote = `with f as materialized (select f.* from unnest($1::text[], $2::text[]) as a (type, id) ` + first + `)
		update outbox_parked set next_retry_at = coalesce(next_retry_at, now()), updated_at = now()
		from f where shard = f.part and seq = f.num returning ` + head

	// All heads of a shard, after its first rows have become heads, and those of its aggregates that are in former shards. It is one statement, so that of an aggregate whose
	// head an operator removes meanwhile that head is still among them.
	sqlHeads = `with a as materialized (select distinct aggregate_type as type, aggregate_id as id from outbox_parked where shard = $1), f as materialized (select f.* from a ` + first + `),
		promoted as (update outbox_parked set next_retry_at = now(), updated_at = now() from f where shard = f.part and seq = f.num and next_retry_at is null returning ` + head + `)
		select * from promoted union all select ` + head + ` from outbox_parked where shard = $1 and next_retry_at is not null
		union all select ` + head + ` from f cross join lateral (select * from outbox_parked p where p.shard = f.part and p.seq = f.num and f.part <> $1 limit 1) as p where next_retry_at is not null`

	sqlUnpromote = `update outbox_parked set next_retry_at = null, updated_at = now() where (shard, seq) in (select * from unnest($1::smallint[], $2::bigint[]))`
)

// database is a pool or a transaction.
type database interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
}

// places are the keys of rows that aggregates are parked at.
func places(list []*parking) (shards []int, seqs []int64) {
	for _, p := range list {
		shards, seqs = append(shards, p.shard), append(seqs, int64(p.pos))
	}
	return shards, seqs
}

// names are those of aggregates.
func names(list []*parking) (types, ids []string) {
	for _, p := range list {
		types, ids = append(types, p.agg.Type), append(ids, p.agg.ID)
	}
	return types, ids
}

// selectHeads reads heads by one of the queries for them.
func selectHeads(ctx context.Context, db database, query string, args ...any) ([]*parking, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("relay: cannot read outbox_parked: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanHead)
	if err != nil {
		return nil, fmt.Errorf("relay: cannot read outbox_parked: %w", err)
	}
	return list, nil
}

func scanHead(c pgx.CollectableRow) (*parking, error) {
	p := &parking{}
	var left float64
	err := c.Scan(&p.shard, &p.pos, &p.event, &p.agg.Type, &p.agg.ID, &p.attempts, &p.later, &left)
	p.left = time.Duration(left * float64(time.Second))
	return p, err
}

// promote returns the heads that aggregates have now; those of which nothing is left have none.
func promote(ctx context.Context, db database, list []*parking) ([]*parking, error) {
	if len(list) == 0 {
		return nil, nil
	}
	types, ids := names(list)
	return selectHeads(ctx, db, sqlPromote, types, ids)
}

// unpromote makes heads wait like the rows behind them.
func unpromote(ctx context.Context, db database, list []*parking) error {
	if len(list) == 0 {
		return nil
	}
	shards, seqs := places(list)
	if _, err := db.Exec(ctx, sqlUnpromote, shards, seqs); err != nil {
		return fmt.Errorf("relay: cannot write outbox_parked: %w", err)
	}
	return nil
}

// selectGone returns those of the heads that an operator has removed.
func selectGone(ctx context.Context, db database, known []*parking) (gone []*parking, err error) {
	if len(known) == 0 {
		return nil, nil
	}
	shards, seqs := places(known)
	var nth int64
	err = each(ctx, db, "outbox_parked", []any{&nth}, func() error { gone = append(gone, known[nth-1]); return nil }, sqlGone, shards, seqs)
	return gone, err
}

// selectDue reads heads that are due, so many of each shard, and how long until something is due that is not yet. Both are asked in one transaction, for which now() is one
// moment: what becomes due between them is in one of the answers.
func selectDue(ctx context.Context, pool *pgxpool.Pool, shards []int, most int) (due []*parking, next time.Duration, err error) {
	batch := &pgx.Batch{}
	batch.Queue(sqlDue, shards, most).Query(func(rows pgx.Rows) (err error) {
		due, err = pgx.CollectRows(rows, scanHead)
		return err
	})
	var left float64
	batch.Queue(sqlNext, shards).QueryRow(func(r pgx.Row) error { return r.Scan(&left) })
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, 0, fmt.Errorf("relay: cannot read outbox_parked: %w", err)
	}
	return due, time.Duration(left * float64(time.Second)), nil
}

const sqlCount = `update outbox_parked set attempts = attempts + 1, next_retry_at = now() + t.wait * interval '1 second', updated_at = now()
		from unnest($1::smallint[], $2::bigint[], $3::float8[]) as t (part, num, wait) where shard = t.part and seq = t.num`

// countTries counts tries before they are made, so that a row that ends the relay is counted as well.
func countTries(ctx context.Context, db database, list []*parking, backoff func(n int) time.Duration) error {
	if len(list) == 0 {
		return nil
	}
	shards, seqs := places(list)
	waits := make([]float64, len(list))
	for i, p := range list {
		waits[i] = backoff(p.attempts + 1).Seconds()
	}
	if _, err := db.Exec(ctx, sqlCount, shards, seqs, waits); err != nil {
		return fmt.Errorf("relay: cannot count tries: %w", err)
	}
	return nil
}

// sqlWaiting reads rows of aggregates in order, so many of each and so many bytes of all; at least one.
const sqlWaiting = `select seq, shard, event_id, at, aggregate_type, aggregate_id, event_type, payload, content_type, headers, attempts, redrives, gone from (
		select p.seq, p.shard, p.event_id, case when isfinite(l.occurred_at) then l.occurred_at else p.parked_at end as at, p.aggregate_type, p.aggregate_id, p.event_type,
			coalesce(l.payload, '') as payload, coalesce(l.content_type, '') as content_type, coalesce(l.headers, '{}') as headers, p.attempts, p.redrives,
			l.seq is null as gone, a.nth,
			sum(coalesce(octet_length(l.payload), 0)) over (order by a.nth, p.seq rows between unbounded preceding and 1 preceding) as before
		from unnest($1::text[], $2::text[]) with ordinality as a (type, id, nth)
		cross join lateral (select * from outbox_parked p where p.aggregate_id = a.id and p.aggregate_type = a.type and not coalesce(p.not_before > now(), false) order by p.seq limit $3) as p
		left join lateral (select * from outbox_log l where l.seq = p.seq and l.day = p.day limit 1) as l on true) as w
	where coalesce(before, 0) <= $4 order by nth, seq`

// selectWaiting reads the first rows of parked aggregates.
func selectWaiting(ctx context.Context, db database, list []*parking, each int) ([]*sink.Row, error) {
	types, ids := names(list)
	rows, err := db.Query(ctx, sqlWaiting, types, ids, each, sink.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("relay: cannot read parked rows: %w", err)
	}
	waiting, err := pgx.CollectRows(rows, func(c pgx.CollectableRow) (*sink.Row, error) {
		r := &sink.Row{}
		var headers []byte
		err := c.Scan(&r.Pos, &r.Shard, &r.ID, &r.OccurredAt, &r.AggregateType, &r.AggregateID, &r.EventType, &r.Payload, &r.ContentType, &headers, &r.Attempts, &r.Redrives, &r.Gone)
		r.Headers = outbox.ReadHeaders(headers)
		r.Attempts++
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("relay: cannot read parked rows: %w", err)
	}
	return waiting, nil
}

// deletePublished moves published rows to outbox_late, with the marker after which each was stored.
func deletePublished(ctx context.Context, db database, done []*sink.Row, after func(r *sink.Row) uint64) error {
	if len(done) == 0 {
		return nil
	}
	shards, seqs, ids, markers := make([]int, len(done)), make([]int64, len(done)), make([]uuid.UUID, len(done)), make([]int64, len(done))
	for i, r := range done {
		shards[i], seqs[i], ids[i], markers[i] = r.Shard, int64(r.Pos), r.ID, int64(after(r)) // a stream has fewer messages
	}
	tag, err := db.Exec(ctx, sqlPublished, shards, seqs, markers)
	if err == nil && tag.RowsAffected() < int64(len(done)) { // the others were discarded meanwhile, and are in the stream
		_, err = db.Exec(ctx, sqlPublishedBeside, shards, seqs, ids, markers)
	}
	return err
}

// updateFailed leaves an aggregate parked at a row.
func updateFailed(ctx context.Context, db database, r *sink.Row, state string, wait time.Duration, why string) error {
	_, err := db.Exec(ctx, `update outbox_parked set state = $3, attempts = $4, last_error = nullif($5, ''), updated_at = now(),
		next_retry_at = case $3 when 'DEAD' then 'infinity' else now() + $6 * interval '1 second' end
		where shard = $1 and seq = $2`, r.Shard, int64(r.Pos), state, r.Attempts, sink.Reason(why), wait.Seconds())
	return err
}
