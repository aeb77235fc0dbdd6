package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Row is a claimed message.
type Row struct {
	Message
	Seq      int64
	Shard    int
	Attempts int // this one included
	Redrives int
}

// Batch is what a worker has claimed: it alone may mark its rows, until the lease ends.
type Batch struct {
	Token     uuid.UUID
	Rows      []Row     // by Seq; of an aggregate they are the first ones that are not sent
	Until     time.Time // when the lease ends, by the clock of the database
	Postponed int       // rows that wait behind one that failed and were moved behind it; more may be due at once
}

// ClaimNextBatch takes up to n rows that are due, of the shards (all when empty), and counts their attempt. No row is in the
// batches of two workers while their leases last, and no row is claimed while an earlier one of its aggregate is neither
// sent nor in the same batch: a failed row blocks its aggregate and nothing else. A row whose lease has ended is due, or DEAD
// when that was its last attempt. Rows that are due later (NotBefore) block nobody.
func (s *Store) ClaimNextBatch(ctx context.Context, worker string, shards []int, n int) (*Batch, error) {
	b := &Batch{Token: uuid.New()}
	var q pgx.Batch                                  // one transaction, one round trip
	q.Queue(`select set_config('jit', 'off', true)`) // the pool may be of somebody else; see Prepare
	b.claim(&q, s, worker, shards, n)
	if err := s.Pool.SendBatch(ctx, &q).Close(); err != nil {
		return nil, fmt.Errorf("outbox: cannot claim: %w", err)
	}
	slices.SortFunc(b.Rows, func(x, y Row) int { return cmp.Compare(x.Seq, y.Seq) })
	return b, nil
}

// claim asks for the rows of the batch.
func (b *Batch) claim(q *pgx.Batch, s *Store, worker string, shards []int, n int) {
	small := make([]int16, len(shards))
	for i, shard := range shards {
		small[i] = int16(shard) // there are at most 64
	}
	q.Queue(sqlClaim, small, n, worker, s.lease(), b.Token, s.attempts()).Query(func(rows pgx.Rows) error { return b.read(rows) })
}

func (b *Batch) read(rows pgx.Rows) error {
	for rows.Next() {
		var r Row
		var notBefore *time.Time
		var postponed bool
		var headers []byte
		if err := rows.Scan(&postponed, &r.ID, &r.OccurredAt, &r.AggregateType, &r.AggregateID, &r.EventType, &r.Payload, &r.ContentType,
			&headers, &notBefore, &r.Seq, &r.Shard, &r.Attempts, &r.Redrives, &b.Until); err != nil {
			return err
		}
		if postponed {
			b.Postponed++
			continue
		}
		if r.Headers = ReadHeaders(headers); notBefore != nil {
			r.NotBefore = *notBefore
		}
		b.Rows = append(b.Rows, r)
	}
	return rows.Err()
}

// claimShards is how many shards may have rows that wait: former ones do where a row of them was made NEW again.
const claimShards = `greatest(s.shards, (select max(shard) + 1 from outbox_event where phase < 2))`

// sqlClaim locks what is due, in the order in which it became due. pred is the row before each one in its aggregate that
// is not sent; a row is free when, for it and all before it in the batch, that is the one before it in the batch. What is
// not free is moved behind the row that it waits for, else it would stand before that, and in the way of others, for ever.
// A row whose lease has ended is among the first that are due. It is spent when that was its last attempt.
const sqlClaim = `
	with due as materialized (
		select d.* from unnest(case when cardinality($1::smallint[]) > 0 then $1 else array(
			select generate_series(0, ` + claimShards + ` - 1)::smallint from outbox_settings s) end) as shards (n)
		cross join lateral (
			select event_id, aggregate_type, aggregate_id, seq, next_retry_at, status = 'SENDING' and attempts >= $6 as spent from outbox_event e
			where e.shard = shards.n and e.phase < 2 and e.next_retry_at <= now()
				and (e.status in ('NEW', 'FAILED') or e.status = 'SENDING' and e.locked_until < now())
			order by e.next_retry_at, e.seq limit $2 for update skip locked
		) as d
	), chosen as (
		select * from due order by next_retry_at, seq limit $2
	), linked as (
		select c.event_id, c.aggregate_type, c.aggregate_id, c.seq, c.next_retry_at, c.spent, p.event_id is not distinct from lag(c.event_id) over w as follows,
			case when p.status in ('NEW', 'FAILED', 'DEAD') then p.next_retry_at end as until
		from chosen c left join lateral (
			select e.event_id, e.status, e.next_retry_at from outbox_event e
			where e.aggregate_id = c.aggregate_id and e.aggregate_type = c.aggregate_type and e.seq < c.seq and e.phase < 2
				and (e.not_before is null or e.not_before <= now())
			order by e.seq desc limit 1
		) as p on true
		window w as (partition by c.aggregate_id, c.aggregate_type order by c.seq)
	), judged as materialized (
		select event_id, next_retry_at, spent, bool_and(follows and not spent) over w as free, max(case when not follows then until end) over w as until
		from linked window w as (partition by aggregate_id, aggregate_type order by seq)
	), postponed as (
		update outbox_event e set next_retry_at = greatest(j.next_retry_at, least(j.until, now() + interval '1 hour')), updated_at = now()
		from judged j where e.event_id = any (array(select event_id from judged where not free and until > next_retry_at)) and j.event_id = e.event_id
		returning e.event_id, e.seq
	), ended as (
		update outbox_event e set status = 'DEAD', next_retry_at = 'infinity', last_error = 'the lease of ' || e.locked_by || ' has ended',
			locked_by = null, locked_until = null, lease_token = null, updated_at = now()
		where e.event_id = any (array(select event_id from judged where spent))
		returning e.event_id, e.seq
	), claimed as (
		update outbox_event e set status = 'SENDING', attempts = e.attempts + 1, locked_by = $3, locked_until = now() + $4 * interval '1 second',
			lease_token = $5, last_error = case when e.status = 'SENDING' then 'the lease of ' || e.locked_by || ' has ended' else e.last_error end, updated_at = now()
		where e.event_id = any (array(select event_id from judged where free))
		returning e.event_id, case when isfinite(e.occurred_at) then e.occurred_at else e.created_at end, e.aggregate_type, e.aggregate_id, e.event_type,
			e.payload, e.content_type, e.headers, case when isfinite(e.not_before) then e.not_before end,
			e.seq, e.shard, e.attempts, e.redrives, e.locked_until
	)
	select false, * from claimed union all
	select true, event_id, now(), '', '', '', ''::bytea, '', '{}', null, seq, 0, 0, 0, now()
	from (select * from postponed union all select * from ended) as others`

// sqlReleaseExpired reads all rows that wait.
const sqlReleaseExpired = `
	update outbox_event set status = case when attempts >= $1 then 'DEAD' else 'NEW' end,
		next_retry_at = case when attempts >= $1 then 'infinity' else now() end,
		last_error = 'the lease of ' || locked_by || ' has ended', locked_by = null, locked_until = null, lease_token = null, updated_at = now()
	where event_id = any (array(
		select event_id from outbox_event where phase < 2 and status = 'SENDING' and locked_until < now()
		order by shard, next_retry_at, seq limit 1000 for update skip locked))`

// ReleaseExpired makes rows whose lease has ended claimable again, or DEAD when they had their last attempt, and says how
// many. A claim does not need it; it is for those who look at the states.
func (s *Store) ReleaseExpired(ctx context.Context) (int64, error) {
	tag, err := s.Pool.Exec(ctx, sqlReleaseExpired, s.attempts())
	if err != nil {
		return 0, fmt.Errorf("outbox: cannot release leases: %w", err)
	}
	return tag.RowsAffected(), nil
}
