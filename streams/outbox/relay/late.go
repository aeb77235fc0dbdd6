package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams"
)

// What was parked and published since lies behind the position: when the stream loses it, restored from a backup or cut short
// with a disk, neither position nor marker need tell. So outbox_late keeps where it was stored, and whoever opens the shard looks
// whether it is there.

const sqlPublished = `
	with done as (
		delete from outbox_parked p using unnest($1::smallint[], $2::bigint[], $3::bigint[]) as w (part, num, marker) where p.shard = w.part and p.seq = w.num returning p.*, w.marker
	)
	insert into outbox_late (shard, seq, event_id, day, marker) select shard, seq, event_id, day, marker from done
	on conflict (shard, seq, event_id) do update set marker = excluded.marker, sent_at = excluded.sent_at`

// sqlPublishedBeside says of rows that were discarded while they were published that they are in the stream.
const sqlPublishedBeside = `
	update outbox_late t set marker = w.marker, sent_at = now() from unnest($1::smallint[], $2::bigint[], $3::uuid[], $4::bigint[]) as w (part, num, id, marker)
	where t.shard = w.part and t.seq = w.num and t.event_id = w.id and t.marker is null`

const (
	// Rows without a day are of the former mode wal: no table has them. The expression is one that no index has.
	ofLog = `coalesce(day, 'infinity') < 'infinity'`

	sqlLate      = `select seq, event_id, marker from outbox_late where shard = $1 and marker >= $2 and ` + ofLog
	sqlDiscarded = `select seq, event_id from outbox_late where shard = $1 and marker is null and ` + ofLog
)

// reclaim parks again what was published behind the position of a session and is missing in what it has read back. What lies
// before that is there: a stream loses its tail, or from its beginning what is too old. It refuses to go on when something
// of it is gone from its table, unless that was accepted.
func (s *session) reclaim(ctx context.Context, pool *pgxpool.Pool, accepted bool) error {
	if s.from == 0 { // nobody knows where in this stream they were stored; what was discarded stays so
		if _, err := pool.Exec(ctx, `delete from outbox_late where shard = $1 and marker is not null`, s.shard); err != nil {
			return fmt.Errorf("relay: cannot write outbox_late: %w", err)
		}
		return nil
	}
	rows, err := pool.Query(ctx, sqlLate, s.shard, int64(s.since)) // a stream has fewer messages
	if err != nil {
		return fmt.Errorf("relay: cannot read outbox_late: %w", err)
	}
	var seqs []int64
	var ids []uuid.UUID
	var behind []bool // what is not is read from the source once more
	var seq int64
	var id uuid.UUID
	var marker, first uint64
	if _, err := pgx.ForEachRow(rows, []any{&seq, &id, &marker}, func() error {
		if there, ok := s.seen[position(seq).String()]; ok && there.id == id.String() {
			return nil
		}
		if first == 0 {
			if first, err = s.o.oldest(ctx); err != nil {
				return err
			}
		}
		if marker < first { // it may have been dropped for its age
			return nil
		}
		seqs, ids, behind = append(seqs, seq), append(ids, id), append(behind, position(seq) <= s.pos)
		return nil
	}); err != nil {
		return fmt.Errorf("relay: cannot read outbox_late: %w", err)
	}
	if len(seqs) == 0 {
		return nil
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var parked, gone int
		if err := tx.QueryRow(ctx, sqlReclaim, s.shard, seqs, ids, behind).Scan(&parked, &gone); err != nil {
			return err
		}
		if gone > 0 && !accepted {
			return permanent(s.setBack())
		}
		return nil
	})
	var fatal *PermanentError
	if err != nil && !errors.As(err, &fatal) {
		return fmt.Errorf("relay: cannot park what the stream has lost: %w", err)
	}
	return err
}

const sqlTakeOut = `select seq, event_id, aggregate_type, aggregate_id from outbox_parked where shard = $1 and event_id = any ($2)`

// takeOut takes out of the database what earlier sessions have published and left parked, and returns the heads that their aggregates
// have now. They may be in other shards.
func (s *session) takeOut(ctx context.Context, pool *pgxpool.Pool) (heads []*parking, err error) {
	ids := slices.Collect(maps.Keys(s.lost))
	for _, there := range s.seen {
		if id, err := uuid.Parse(there.id); err == nil {
			ids = append(ids, id)
		}
	}
	var done []*row
	var list []*parking
	for some := range slices.Chunk(ids, 10000) {
		rows, err := pool.Query(ctx, sqlTakeOut, s.shard, some)
		if err != nil {
			return nil, fmt.Errorf("relay: cannot read outbox_parked: %w", err)
		}
		var r row
		if _, err := pgx.ForEachRow(rows, []any{&r.num, &r.ID, &r.AggregateType, &r.AggregateID}, func() error {
			one := r
			one.shard, one.pos = s.shard, position(r.num)
			if s.stored(&one) {
				done, list = append(done, &one), append(list, one.parking())
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("relay: cannot read outbox_parked: %w", err)
		}
	}
	if err := deletePublished(ctx, pool, done, func(r *row) uint64 { at, _ := s.storedAt(r); return at }); err != nil {
		return nil, fmt.Errorf("relay: cannot take out what was published: %w", err)
	}
	return promote(ctx, pool, list)
}

const sqlAside = `select event_id::text, seq from outbox_parked where shard = $1 and seq > $2`

// putAside notes what earlier sessions have parked beyond the position.
func (s *session) putAside(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, sqlAside, s.shard, int64(s.pos))
	if err != nil {
		return fmt.Errorf("relay: cannot read outbox_parked: %w", err)
	}
	s.aside = map[string]string{}
	var id string
	var seq int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &seq}, func() error { s.aside[position(seq).String()] = id; return nil }); err != nil {
		return fmt.Errorf("relay: cannot read outbox_parked: %w", err)
	}
	return nil
}

// ahead says that a parked row is read again before the position has passed it.
func (s *session) ahead(key, event string) bool {
	if len(s.aside) == 0 || s.aside[key] != event {
		return false
	}
	pos, err := parsePosition(key)
	return err == nil && pos > s.pos
}

// spare takes what was discarded for stored where it will be read once more: a relay that is killed, or a stream that is set
// back, leaves a position before it. What an earlier session published before that is sent.
func (s *session) spare(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, sqlDiscarded, s.shard)
	if err != nil {
		return fmt.Errorf("relay: cannot read outbox_late: %w", err)
	}
	var seqs, markers []int64
	var ids []uuid.UUID
	var seq int64
	var id uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&seq, &id}, func() error {
		pos := position(seq)
		key := pos.String()
		if there, ok := s.seen[key]; ok && there.id == id.String() {
			seqs, ids, markers = append(seqs, seq), append(ids, id), append(markers, int64(there.at)) // a stream has fewer messages
			return nil
		}
		if pos <= s.pos {
			return nil
		}
		if s.seen == nil {
			s.seen = map[string]stored{}
		}
		s.seen[key] = stored{id: id.String()}
		s.seenTo = max(s.seenTo, pos)
		return nil
	}); err != nil {
		return fmt.Errorf("relay: cannot read outbox_late: %w", err)
	}
	if len(seqs) == 0 {
		return nil
	}
	if _, err := pool.Exec(ctx, sqlPublishedBeside, slices.Repeat([]int{s.shard}, len(seqs)), seqs, ids, markers); err != nil {
		return fmt.Errorf("relay: cannot write outbox_late: %w", err)
	}
	return nil
}

// oldest is the sequence of the first message that the stream still has.
func (o *opener) oldest(ctx context.Context) (uint64, error) {
	stream, err := streams.Led(ctx, o.js, o.stream.Name)
	if err != nil {
		return 0, fmt.Errorf("relay: cannot open stream %s: %w", o.stream.Name, err)
	}
	return stream.CachedInfo().State.FirstSeq, nil
}

// sqlReclaim parks rows of outbox_late again, due at once, if they are behind the position, and says how many of those are
// gone from the table.
const sqlReclaim = `
	with w as materialized (
		select $1::smallint as part, * from unnest($2::bigint[], $3::uuid[], $4::boolean[]) as w (seq, event_id, behind)
	), late as (
		delete from outbox_late t using w where t.shard = w.part and t.seq = w.seq and t.event_id = w.event_id returning t.*, w.behind
	), found as (
		select t.shard, t.seq, t.event_id, t.day, l.aggregate_type, l.aggregate_id, l.event_type from late t
		cross join lateral (select * from outbox_log l where l.seq = t.seq and l.day = t.day limit 1) as l where t.behind
	), parked as (
		insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, next_retry_at)
		select *, 'NEW', now() from found on conflict do nothing
	)
	select (select count(*) from found), (select count(*) from late where behind) - (select count(*) from found)`
