package log

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// LastNumber is what the sequence of the log has given out last.
func LastNumber(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
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
func scan(rows pgx.Rows, capacity int) (list []*sink.Row, cut bool, err error) {
	list = make([]*sink.Row, 0, min(capacity, 64))
	var block []sink.Row
	bytes := 0
	for rows.Next() {
		if bytes > sink.MaxBytes {
			cut = true
			continue
		}
		if len(block) == 0 {
			block = make([]sink.Row, 64)
		}
		r := &block[0]
		block = block[1:]
		var headers []byte
		var seq int64
		if err := rows.Scan(&seq, &r.Shard, &r.ID, &r.OccurredAt, &r.AggregateType, &r.AggregateID, &r.EventType, &r.Payload, &r.ContentType, &headers, &r.Later); err != nil {
			return nil, false, err
		}
		bytes += len(r.Payload) + len(headers)
		r.Pos = sink.Position(seq)
		r.Headers = outbox.ReadHeaders(headers)
		list = append(list, r)
	}
	return list, cut, rows.Err()
}
