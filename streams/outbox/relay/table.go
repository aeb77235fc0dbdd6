package relay

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
)

// settings are what the database says of its outbox.
type settings struct {
	mode    outbox.Mode
	shards  int
	read    int    // those that were more once have rows, too: all of mode log, those of mode claim that wait
	source  string // the name under which it is relayed
	renamed string // the one before
}

func readSettings(ctx context.Context, pool *pgxpool.Pool) (settings, error) {
	var s settings
	err := pool.QueryRow(ctx, `select mode, shards, case mode when 'claim' then greatest(shards, (select max(shard) + 1 from outbox_event where phase < 2)) else read_shards end, coalesce(source, ''), coalesce(renamed, '') from outbox_settings`).Scan(&s.mode, &s.shards, &s.read, &s.source, &s.renamed)
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
	if err := pool.QueryRow(ctx, sqlMark).Scan(&n); err != nil {
		return 0, fmt.Errorf("relay: cannot ask how far the database is: %w", err)
	}
	return n, nil
}

const (
	sqlFence = `select mark, writers from outbox_fence()`

	sqlMark = `select coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')), 0)`
	// Puts what was read before it on disk, when there was something to read, as outbox_fence does it: rows can be seen before
	// their commit is there.
	sqlFlush = `select case when (` + sqlMark + `) > $1 and pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()
		then set_config('synchronous_commit', 'local', true) || pg_logical_emit_message(true, 'instar.flush', '')::text end is not null`

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
		r.pos, r.num = position(seq), seq
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
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("relay: cannot read outbox_cursor: %w", err)
	}
	if cluster != "" && cluster != o.cluster {
		return 0, permanent(fmt.Errorf("%w: outbox_cursor has a position of %s, this is %s (cluster, database, oid, schema): the tables of %s were restored here. In the database, to go on behind what was sent from there: update outbox_cursor set system_identifier = '' where source = '%s'; to publish all that the stream does not have: delete from outbox_cursor where source = '%s'",
			errForeign, cluster, o.cluster, o.source, o.source, o.source))
	}
	return position(seq), nil
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
			o.source, s.shard, int64(min(s.pos, math.MaxInt64)), o.cluster, o.node, o.mode, s.generation)
	}
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot write outbox_cursor: %w", err)
	}
	return nil
}
