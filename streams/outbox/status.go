package outbox

// How an outbox stands, as its tables show. Status, for the API of relays, the command line and the metrics of a relay (relay/maintain.go), counts rows by state, or estimates
// them where they are many, finds the oldest one that is due and the oldest open writer, and lists parked aggregates and the positions of the shards (parts).

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// counted is up to how many rows are counted one by one; more are estimated.
const counted = 10000

// Status is how the outbox stands, as far as the database knows: a relay writes its positions every few seconds. Only the relay itself has Problem and Rate.
func (s *Store) Status(ctx context.Context) (Status, error) {
	st := Status{Rows: map[string]int64{StateNew: 0, StateSending: 0, StateSent: 0, StateFailed: 0, StateDead: 0}}
	var shards int
	var oldest, fence *time.Time
	read := func() error {
		if err := s.CheckSchema(ctx); errors.Is(err, ErrSchema) {
			return err
		}
		if err := s.Pool.QueryRow(ctx, `select mode, case mode when 'log' then read_shards else shards end, now() from outbox_settings`).Scan(&st.Mode, &shards, &st.At); err != nil {
			return err
		}
		rows := map[Mode]string{Log: sqlStatusLog, Claim: sqlStatusEvents}[st.Mode]
		var fresh, sending, sent, failed, dead int64
		if err := s.Pool.QueryRow(ctx, rows, counted).Scan(&fresh, &sending, &failed, &dead, &sent, &oldest); err != nil {
			return err
		}
		st.Rows = map[string]int64{StateNew: fresh, StateSending: sending, StateFailed: failed, StateDead: dead, StateSent: max(sent, 0)}
		st.Lag = fresh + sending + failed
		if st.Mode == Log {
			if err := s.Pool.QueryRow(ctx, `select outbox_oldest_writer()`).Scan(&fence); err != nil {
				return err
			}
		}
		return s.parts(ctx, &st, shards)
	}
	if err := read(); err != nil {
		return st, fmt.Errorf("outbox: cannot read how it stands: %w", err)
	}
	since := func(t *time.Time) float64 {
		if t == nil {
			return 0
		}
		return max(0, st.At.Sub(*t).Seconds())
	}
	st.Oldest, st.FenceWait = since(oldest), since(fence)
	return st, nil
}

// parts are the parked aggregates and the shards.
func (s *Store) parts(ctx context.Context, st *Status, shards int) error {
	query := sqlParked
	if st.Mode == Claim {
		query = sqlParkedEvents
	}
	rows, err := s.Pool.Query(ctx, query)
	if err != nil {
		return err
	}
	if st.Parked, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (p Parked, err error) {
		var next *time.Time
		err = r.Scan(&p.AggregateType, &p.AggregateID, &p.EventID, &p.State, &p.Attempts, &next, &p.Error, &p.Waiting)
		if next != nil {
			p.NextTry = *next
		}
		return p, err
	}); err != nil {
		return err
	}
	for n := range shards {
		st.Shards = append(st.Shards, Shard{Number: n})
	}
	rows, err = s.Pool.Query(ctx, `select distinct on (shard) shard, owner, seq from outbox_cursor order by shard, seq`)
	if err != nil {
		return err
	}
	var shard int
	var owner string
	var seq int64
	_, err = pgx.ForEachRow(rows, []any{&shard, &owner, &seq}, func() error {
		if shard < len(st.Shards) {
			st.Shards[shard].Owner, st.Shards[shard].Position = owner, strconv.FormatInt(seq, 10)
		}
		return nil
	})
	return err
}

// sqlStatusEvents counts NEW, SENDING, FAILED, DEAD, SENT and finds the oldest row that is due and not sent. Numbers that are too large to
// be counted quickly are the planner's estimates.
var sqlStatusEvents = `
	with ahead as (
		select d.* from outbox_settings s, generate_series(0, ` + claimShards + ` - 1) as n cross join lateral (
			select created_at, status, coalesce(not_before > now(), false) as later from outbox_event where shard = n and phase < 2 order by next_retry_at, seq limit $1) as d
	), bad as (
		select created_at, status from outbox_event where phase = 1 order by seq limit $1
	), n as (
		select (select count(*) from ahead) as ahead, (select count(*) from ahead where status = 'NEW') as fresh,
			(select count(*) from ahead where status = 'SENDING') as sending,
			(select count(*) from bad where status = 'FAILED') as failed, (select count(*) from bad where status = 'DEAD') as dead,
			(select greatest(reltuples, 0)::bigint from pg_class where oid = 'idx_outbox_event_status_retry'::regclass) as guess,
			(select greatest(reltuples, 0)::bigint from pg_class where oid = 'idx_outbox_event_sent'::regclass) as sent
	)
	select case when n.ahead >= $1 then greatest(n.fresh, n.guess - n.sending - n.failed - n.dead) else n.fresh end, n.sending, n.failed, n.dead,
		case when pg_relation_size('outbox_event') < 8388608 then (select count(*) from outbox_event where status = 'SENT') else n.sent end,
		least((select min(created_at) from ahead where status = 'SENDING' or status in ('NEW', 'FAILED') and not later), (select min(created_at) from bad))
	from n`

// sqlStatusLog does the same for mode log, from the rows behind the cursors and those that are parked.
const sqlStatusLog = `
	with c as (
		select n::smallint as shard, coalesce(min(c.seq), 0) as seq, coalesce(max(c.reading), 0) as reading
		from outbox_settings s cross join generate_series(0, s.read_shards - 1) as n left join outbox_cursor c on c.shard = n group by n
	), last as (
		select coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')::regclass), 0) as seq, (select min(seq) from c) as lowest
	), ahead as (
		select l.seq, l.shard, l.created_at from outbox_log l where l.seq > (select lowest from last) order by l.seq limit $1
	), behind as (
		select count(*) filter (where a.seq > c.reading) as fresh, count(*) filter (where a.seq <= c.reading) as sending, min(a.created_at) as oldest
		from ahead a join c using (shard) where a.seq > c.seq
	), parked as (
		select count(*) filter (where state = 'NEW') as fresh, count(*) filter (where state = 'FAILED') as failed,
			count(*) filter (where state = 'DEAD') as dead, count(*) as n, min(parked_at) filter (where not coalesce(not_before > now(), false)) as oldest
		from (select state, parked_at, not_before from outbox_parked order by shard, seq limit $1) as p
	), total as (
		select case when sum(pg_relation_size(i.inhrelid)) < 8388608 then -1 else sum(greatest(p.reltuples, 0))::bigint end as n
		from pg_inherits i join pg_class p on p.oid = i.inhrelid where i.inhparent = 'outbox_log'::regclass
	)
	select case when (select count(*) from ahead) >= $1 then last.seq - last.lowest else b.fresh end + p.fresh, b.sending, p.failed, p.dead,
		case when t.n < 0 then (select count(*) from outbox_log) else t.n end - b.fresh - b.sending - p.n, least(b.oldest, p.oldest)
	from behind b, parked p, total t, last`

const sqlParked = `
	select p.aggregate_type, p.aggregate_id, p.event_id::text, p.state, p.attempts, nullif(p.next_retry_at, 'infinity'), coalesce(p.last_error, ''), w.n
	from (select * from outbox_parked where state in ('FAILED', 'DEAD') order by seq limit 100) as p cross join lateral (
		select count(*) as n from (
			select 1 from outbox_parked q where q.aggregate_id = p.aggregate_id and q.aggregate_type = p.aggregate_type and q.seq > p.seq limit 10000) as q
	) as w order by p.seq`

const sqlParkedEvents = `
	select p.aggregate_type, p.aggregate_id, p.event_id::text, p.status, p.attempts, nullif(p.next_retry_at, 'infinity'), coalesce(p.last_error, ''), w.n
	from (select * from outbox_event where phase = 1 order by seq limit 100) as p cross join lateral (
		select count(*) as n from (
			select 1 from outbox_event q where q.aggregate_id = p.aggregate_id and q.aggregate_type = p.aggregate_type and q.phase < 2 and q.seq > p.seq
			order by q.seq limit 10000) as q
	) as w order by p.seq`
