package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
)

// settings are what the database says of its outbox.
type settings struct {
	mode      outbox.Mode
	shards    int
	walPrefix string
	source    string // the name under which it is relayed
	renamed   string // the one before
}

func readSettings(ctx context.Context, pool *pgxpool.Pool) (settings, error) {
	var s settings
	err := pool.QueryRow(ctx, `select mode, shards, wal_prefix, coalesce(source, ''), coalesce(renamed, '') from outbox_settings`).Scan(&s.mode, &s.shards, &s.walPrefix, &s.source, &s.renamed)
	if err != nil {
		return s, fmt.Errorf("relay: cannot read outbox_settings (instar outbox init makes the tables): %w", err)
	}
	return s, nil
}

// nameSource is the name under which the outbox is relayed: this one, if it had none.
func nameSource(ctx context.Context, pool *pgxpool.Pool, name string) (is string, err error) {
	batch := &pgx.Batch{}
	batch.Queue(`update outbox_settings set source = $1 where source is null`, name)
	batch.Queue(`select source from outbox_settings`).QueryRow(func(r pgx.Row) error { return r.Scan(&is) })
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return "", fmt.Errorf("relay: cannot write outbox_settings: %w", err)
	}
	return is, nil
}

// lastNumber is what the sequence of the log has given out last.
func lastNumber(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	var n int64
	err := pool.QueryRow(ctx, `select coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')), 0)`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("relay: cannot read the sequence of outbox_log: %w", err)
	}
	return n, nil
}

const (
	sqlFence = `select mark, writers from outbox_fence()`

	columns       = `seq, shard, event_id, case when isfinite(occurred_at) then occurred_at else created_at end, aggregate_type, aggregate_id, event_type, payload, content_type, headers, coalesce(not_before > now(), false)`
	sqlRead       = `select ` + columns + ` from outbox_log where seq > $1 order by seq limit $2`
	sqlReadShards = `select ` + columns + ` from outbox_log where seq > $1 and shard = any ($3) order by seq limit $2`
)

// scan reads rows of a query over the log, up to so many bytes: what is cut is read again, and not held in memory.
func scan(rows pgx.Rows, capacity int) (list []*row, cut bool, err error) {
	list = make([]*row, 0, min(capacity, 64))
	var block []row
	bytes := 0
	for rows.Next() {
		if bytes > maxBytes {
			cut = true
			continue
		}
		if len(block) == 0 {
			block = make([]row, 64)
		}
		r := &block[0]
		block = block[1:]
		var headers []byte
		var seq int64
		if err := rows.Scan(&seq, &r.shard, &r.ID, &r.OccurredAt, &r.AggregateType, &r.AggregateID, &r.EventType, &r.Payload, &r.ContentType, &headers, &r.later); err != nil {
			return nil, false, err
		}
		bytes += len(r.Payload) + len(headers)
		r.pos, r.num = position{at: uint64(seq)}, seq
		r.Headers = outbox.ReadHeaders(headers)
		list = append(list, r)
	}
	return list, cut, rows.Err()
}

// savedPosition is what outbox_cursor says, for a stream that has no position. That of another cluster is refused: whether the
// stream has what was sent from there is not known.
func savedPosition(ctx context.Context, pool *pgxpool.Pool, o *opener, shard int) (position, error) {
	var seq int64
	var cluster string
	err := pool.QueryRow(ctx, `select seq, system_identifier from outbox_cursor where source = $1 and shard = $2`, o.source, shard).Scan(&seq, &cluster)
	if errors.Is(err, pgx.ErrNoRows) {
		return position{}, nil
	}
	if err != nil {
		return position{}, fmt.Errorf("relay: cannot read outbox_cursor: %w", err)
	}
	if cluster != "" && cluster != o.cluster {
		return position{}, permanent(fmt.Errorf("%w: outbox_cursor has a position of %s, this is %s (cluster, database, oid, schema): the tables of %s were restored here. In the database, to go on behind what was sent from there: update outbox_cursor set system_identifier = '' where source = '%s'; to publish all that the stream does not have: delete from outbox_cursor where source = '%s'",
			errForeign, cluster, o.cluster, o.source, o.source, o.source))
	}
	return position{at: uint64(seq)}, nil
}

// savePositions tells those who look into the database how far the shards are. A database that has another generation was set
// back meanwhile, and keeps what it believes.
func savePositions(ctx context.Context, pool *pgxpool.Pool, o *opener, sessions ...*session) error {
	batch := &pgx.Batch{}
	for _, s := range sessions {
		batch.Queue(`insert into outbox_cursor as c (source, shard, seq, reading, system_identifier, owner)
			select $1, $2, $3, $3, $4, $5 where exists (select from outbox_stream where source = $1 and mode = $6 and shard = $2 and generation = $7)
			on conflict (source, shard) do update set seq = excluded.seq, reading = excluded.reading, system_identifier = excluded.system_identifier, owner = excluded.owner, updated_at = now()
			where (c.seq, c.owner, c.system_identifier) <> (excluded.seq, excluded.owner, excluded.system_identifier)`,
			o.source, s.shard, int64(min(s.pos.at, math.MaxInt64)), o.cluster, o.node, o.mode, s.generation)
	}
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot write outbox_cursor: %w", err)
	}
	return nil
}

// seconds is an interval for SQL.
func seconds(d time.Duration) float64 { return d.Seconds() }

const (
	sqlInsertParked = `
	insert into outbox_parked as p (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before, message, state, attempts, next_retry_at, last_error)
	select r.*, @state, @attempts, case when @state = 'NEW' then coalesce(r.not_before, now()) else now() + @wait * interval '1 second' end, nullif(@why, '')
	from ` + sqlEntered + `, (%s) as r (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before, message)
	on conflict (shard, seq) do update set updated_at = now(), next_retry_at = coalesce(p.next_retry_at, excluded.next_retry_at)
	returning seq, case when next_retry_at = 'infinity' then 1e9 else extract(epoch from next_retry_at - now()) end`

	sqlOfLog     = `select shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before, null::bytea from outbox_log where seq = @seq and event_id = @id`
	sqlOfMessage = `select @shard::smallint, coalesce((select min(seq) from outbox_parked where event_id = @id), @seq), @id::uuid, null::date, @type::text, @aggregate::text, @event::text, @notBefore::timestamptz, @message::bytea`
)

// of are the parameters of a row that is to be parked by a session.
func (s *session) of(r *row) pgx.NamedArgs {
	args := pgx.NamedArgs{"source": s.o.source, "mode": s.o.mode, "shard": s.shard, "generation": s.generation, "seq": r.num, "id": r.ID}
	if r.line != nil {
		maps.Copy(args, pgx.NamedArgs{"type": r.AggregateType, "aggregate": r.AggregateID, "event": r.EventType, "notBefore": notBefore(r), "message": r.parkable()})
	}
	return args
}

// insertParked puts the first row of an aggregate aside and returns how long it waits. One that the WAL brings again keeps its number.
func insertParked(ctx context.Context, pool *pgxpool.Pool, s *session, p *parking, r *row, wait time.Duration, why string) (time.Duration, error) {
	from, args := sqlOfLog, s.of(r)
	if r.line != nil {
		from = sqlOfMessage
	}
	args["state"], args["attempts"], args["wait"], args["why"] = p.state, p.attempts, seconds(wait), clip(why)
	if r.later {
		args["state"], args["why"] = outbox.StateNew, ""
	}
	var left float64
	err := pool.QueryRow(ctx, fmt.Sprintf(sqlInsertParked, from), args).Scan(&p.num, &left)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("%w: shard %d parks nothing more", errFenced, s.shard)
	}
	if err != nil {
		return 0, fmt.Errorf("relay: cannot park %s/%s: %w", r.AggregateType, r.AggregateID, err)
	}
	return time.Duration(left * float64(time.Second)), nil
}

func notBefore(r *row) *time.Time {
	if r.NotBefore.IsZero() {
		return nil
	}
	return &r.NotBefore
}

const (
	sqlInsertWaiting = `insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before, message, state) select r.*, 'NEW' from ` + sqlEntered

	sqlWaitingOfLog = sqlInsertWaiting + `,
		(select shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before, null::bytea from outbox_log join unnest(@seqs::bigint[], @ids::uuid[]) as w (seq, event_id) using (seq, event_id)) as r
		on conflict (shard, seq) do nothing`
	sqlWaitingOfMessage = sqlInsertWaiting + `, (` + sqlOfMessage + `) as r where not exists (select from outbox_parked where event_id = @id)`
)

// insertWaiting puts rows of a shard aside that follow parked ones.
func insertWaiting(ctx context.Context, pool *pgxpool.Pool, s *session, rows []*row) error {
	batch := &pgx.Batch{} // one transaction: what it looks at first stays locked
	entered := false
	batch.Queue(`select true from `+sqlEntered, s.of(rows[0])).Query(func(rows pgx.Rows) error {
		entered = rows.Next()
		return rows.Err()
	})
	var seqs []int64
	var ids []uuid.UUID
	for _, r := range rows {
		if r.line == nil {
			seqs, ids = append(seqs, r.num), append(ids, r.ID)
			continue
		}
		batch.Queue(sqlWaitingOfMessage, s.of(r))
	}
	if len(seqs) > 0 {
		args := s.of(rows[0])
		args["seqs"], args["ids"] = seqs, ids
		batch.Queue(sqlWaitingOfLog, args)
	}
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot park rows behind others: %w", err)
	}
	if !entered {
		return fmt.Errorf("%w: shard %d parks nothing more", errFenced, s.shard)
	}
	return nil
}

// promoteParked gives each aggregate whose first row was discarded or published its next one as the first.
func promoteParked(ctx context.Context, pool *pgxpool.Pool, shards []int) error {
	_, err := pool.Exec(ctx, `update outbox_parked p set next_retry_at = greatest(now(), coalesce(p.not_before, now())), updated_at = now()
		where p.shard = any ($1) and p.next_retry_at is null
		and not exists (select 1 from outbox_parked q where q.aggregate_id = p.aggregate_id and q.aggregate_type = p.aggregate_type and not coalesce(q.not_before > now(), false) and (q.seq < p.seq or q.next_retry_at is not null))`, shards)
	if err != nil {
		return fmt.Errorf("relay: cannot go on with parked aggregates: %w", err)
	}
	return nil
}

// sqlLine is what an emitted message says of itself: its first line. sqlKey is [row.key] of what is parked, or was.
const (
	sqlLine = `convert_from(substring(message for position('\x0a'::bytea in message) - 1), 'UTF8')::jsonb`
	sqlKey  = `coalesce(` + sqlLine + ` ->> 'pos', seq::text)`
)

const sqlHeads = `select shard, seq, event_id::text, ` + sqlKey + `, aggregate_type, aggregate_id, state, attempts, coalesce(not_before > now(), false),
			case when next_retry_at = 'infinity' then 1e9 else extract(epoch from next_retry_at - now())::float8 end
		from outbox_parked where shard = any ($1) and next_retry_at is not null`

// selectParked reads the first rows of the parked aggregates.
func selectParked(ctx context.Context, pool *pgxpool.Pool, shards []int) ([]*parking, error) {
	rows, err := pool.Query(ctx, sqlHeads, shards)
	if err != nil {
		return nil, fmt.Errorf("relay: cannot read outbox_parked: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(c pgx.CollectableRow) (*parking, error) {
		p := &parking{}
		var left float64
		err := c.Scan(&p.shard, &p.num, &p.event, &p.key, &p.agg.typ, &p.agg.id, &p.state, &p.attempts, &p.later, &left)
		p.due = time.Now().Add(time.Duration(left * float64(time.Second)))
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("relay: cannot read outbox_parked: %w", err)
	}
	return list, nil
}

// countTry counts a try before it is made, so that a row that ends the relay is counted as well.
func countTry(ctx context.Context, pool *pgxpool.Pool, p *parking, wait time.Duration) error {
	_, err := pool.Exec(ctx, `update outbox_parked set attempts = attempts + 1, next_retry_at = now() + $3 * interval '1 second', updated_at = now() where shard = $1 and seq = $2`, p.shard, p.num, seconds(wait))
	if err != nil {
		return fmt.Errorf("relay: cannot count a try: %w", err)
	}
	return nil
}

const sqlWaiting = `select p.seq, p.shard, p.event_id, case when isfinite(l.occurred_at) then l.occurred_at else p.parked_at end, p.aggregate_type, p.aggregate_id, p.event_type, coalesce(l.payload, ''), coalesce(l.content_type, ''), coalesce(l.headers, '{}'),
		p.attempts, p.redrives, p.message, l.seq is null and p.message is null
		from outbox_parked p left join outbox_log l on l.seq = p.seq and l.day = p.day
		where p.shard = $1 and p.aggregate_type = $2 and p.aggregate_id = $3 and not coalesce(p.not_before > now(), false) order by p.seq limit 100`

// selectWaiting reads the rows of a parked aggregate, in order.
func selectWaiting(ctx context.Context, pool *pgxpool.Pool, p *parking) ([]*row, error) {
	rows, err := pool.Query(ctx, sqlWaiting, p.shard, p.agg.typ, p.agg.id)
	if err != nil {
		return nil, fmt.Errorf("relay: cannot read parked rows: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(c pgx.CollectableRow) (*row, error) {
		r := &row{}
		var headers, message []byte
		err := c.Scan(&r.num, &r.shard, &r.ID, &r.OccurredAt, &r.AggregateType, &r.AggregateID, &r.EventType, &r.Payload, &r.ContentType, &headers, &r.attempts, &r.redrives, &message, &r.gone)
		r.pos = position{at: uint64(r.num)}
		r.Headers = outbox.ReadHeaders(headers)
		if err == nil && message != nil {
			err = r.emitted(message, position{})
		}
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("relay: cannot read parked rows: %w", err)
	}
	return list, nil
}

// advanceParked takes out the rows that a session has published and, if one was refused, leaves the aggregate parked at it.
func advanceParked(ctx context.Context, pool *pgxpool.Pool, s *session, done, left []*row, state string, wait time.Duration, why string) error {
	batch := &pgx.Batch{}
	if len(done) > 0 {
		var seqs, after []int64
		for _, r := range done {
			seqs, after = append(seqs, r.num), append(after, int64(s.after(r))) //nolint:gosec // a stream has fewer messages
		}
		batch.Queue(sqlPublished, done[0].shard, seqs, after)
	}
	if len(left) > 0 {
		r := left[0]
		batch.Queue(`update outbox_parked set state = $3, attempts = $4, last_error = nullif($5, ''), updated_at = now(),
			next_retry_at = case $3 when 'DEAD' then 'infinity' else now() + $6 * interval '1 second' end
			where shard = $1 and seq = $2`, r.shard, r.num, state, r.attempts, clip(why), seconds(wait))
	}
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot move a parked aggregate on: %w", err)
	}
	return nil
}

// clip keeps a reason short enough for a table and free of what text cannot hold.
func clip(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}

// lastParked is the greatest number that something is or was parked under.
func lastParked(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	var n int64
	if err := pool.QueryRow(ctx, `select greatest((select max(seq) from outbox_parked), (select max(seq) from outbox_late), 0)`).Scan(&n); err != nil {
		return 0, fmt.Errorf("relay: cannot read outbox_parked: %w", err)
	}
	return n, nil
}
