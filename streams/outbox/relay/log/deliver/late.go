package deliver

// Parked rows that earlier sessions have published or an operator has discarded, sorted out when a shard is opened (Compare in compare.go, then Load in retry.go). They are
// behind the position, so when the stream loses one, restored from a backup or cut short with its disk, neither position nor marker shows it: outbox_late has the marker after
// which each was stored. reclaim parks again what the stream has lost, takeOut removes what it has; putAside and spare keep parked and discarded rows from being published when
// they are read again.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

const sqlPublished = `
	with done as (
		delete from outbox_parked p using unnest($1::smallint[], $2::bigint[], $3::bigint[]) as w (part, num, marker) where p.shard = w.part and p.seq = w.num returning p.*, w.marker
	)
	insert into outbox_late (shard, seq, event_id, day, marker) select shard, seq, event_id, day, marker from done
	on conflict (shard, seq, event_id) do update set marker = excluded.marker, sent_at = excluded.sent_at`

// sqlPublishedBeside records that rows which were discarded while they were published are in the stream.
const sqlPublishedBeside = `
	update outbox_late t set marker = w.marker, sent_at = now() from unnest($1::smallint[], $2::bigint[], $3::uuid[], $4::bigint[]) as w (part, num, id, marker)
	where t.shard = w.part and t.seq = w.num and t.event_id = w.id and t.marker is null`

const (
	sqlLate      = `select seq, event_id, marker from outbox_late where shard = $1 and marker >= $2`
	sqlDiscarded = `select seq, event_id from outbox_late where shard = $1 and marker is null`
)

// reclaim parks again what was published behind the position of a session, and is missing in what it has read back. What is earlier in the stream is there: a stream loses its
// tail, or what is too old at its beginning. It fails when something of it is gone from outbox_log, unless that was accepted.
func (s *history) reclaim(ctx context.Context, pool *pgxpool.Pool, accepted bool) error {
	if s.From == 0 { // it is not known where in this stream they were stored; what was discarded stays so
		if _, err := pool.Exec(ctx, `delete from outbox_late where shard = $1 and marker is not null`, s.Shard); err != nil {
			return fmt.Errorf("relay: cannot write outbox_late: %w", err)
		}
		return nil
	}
	var seqs []int64
	var ids []uuid.UUID
	var behind []bool // what is not is read from the source once more
	var p sink.Position
	var id uuid.UUID
	var marker, first uint64
	err := each(ctx, pool, "outbox_late", []any{&p, &id, &marker}, func() (err error) {
		if _, ok := s.seen(p, id); ok {
			return nil
		}
		if first == 0 {
			if first, err = s.Oldest(ctx); err != nil {
				return err
			}
		}
		if marker < first { // it may have been dropped for its age
			return nil
		}
		seqs, ids, behind = append(seqs, int64(p)), append(ids, id), append(behind, p <= s.Pos)
		return nil
	}, sqlLate, s.Shard, int64(s.Since)) // a stream has fewer messages
	if err != nil || len(seqs) == 0 {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var parked, gone int
		if err := tx.QueryRow(ctx, sqlReclaim, s.Shard, seqs, ids, behind).Scan(&parked, &gone); err != nil {
			return err
		}
		if gone > 0 && !accepted {
			return s.Regressed()
		}
		return nil
	})
	if err != nil && !errors.Is(err, session.ErrStreamRegressed) {
		return fmt.Errorf("relay: cannot park what the stream has lost: %w", err)
	}
	return err
}

const sqlTakeOut = `select seq, event_id, aggregate_type, aggregate_id from outbox_parked where shard = $1 and event_id = any ($2)`

// takeOut removes from outbox_parked what earlier sessions have published and left there, and returns the new heads of their aggregates, which may be in other shards.
func (s *history) takeOut(ctx context.Context, pool *pgxpool.Pool) (heads []*parking, err error) {
	ids := slices.Collect(maps.Keys(s.lost))
	for _, there := range s.Seen {
		if id, err := uuid.Parse(there.ID); err == nil {
			ids = append(ids, id)
		}
	}
	var done []*sink.Row
	var list []*parking
	for some := range slices.Chunk(ids, 10000) {
		r := sink.Row{Shard: s.Shard}
		if err := each(ctx, pool, "outbox_parked", []any{&r.Pos, &r.ID, &r.AggregateType, &r.AggregateID}, func() error {
			if one := r; s.stored(&one) {
				done, list = append(done, &one), append(list, parkingOf(&one))
			}
			return nil
		}, sqlTakeOut, s.Shard, some); err != nil {
			return nil, err
		}
	}
	if err := deletePublished(ctx, pool, done, func(r *sink.Row) uint64 { at, _ := s.storedAt(r); return at }); err != nil {
		return nil, fmt.Errorf("relay: cannot take out what was published: %w", err)
	}
	return promote(ctx, pool, list)
}

const sqlAside = `select seq, event_id from outbox_parked where shard = $1 and seq > $2`

// putAside notes what earlier sessions have parked beyond the position.
func (s *history) putAside(ctx context.Context, pool *pgxpool.Pool) error {
	s.aside = map[sink.Position]uuid.UUID{}
	return eachEvent(ctx, pool, "outbox_parked", func(p sink.Position, id uuid.UUID) { s.aside[p] = id }, sqlAside, s.Shard, int64(s.Pos))
}

// ahead reports whether a parked row will be read again, because the position has not passed it yet.
func (s *history) ahead(p sink.Position, id uuid.UUID) bool {
	aside, ok := s.aside[p]
	return ok && aside == id && p > s.Pos
}

// spare treats what was discarded as stored where it will be read once more, because a relay was killed, or the stream set back, and the position is before it. What an earlier
// session has published before it was discarded is recorded as sent.
func (s *history) spare(ctx context.Context, pool *pgxpool.Pool) error {
	var seqs, markers []int64
	var ids []uuid.UUID
	err := eachEvent(ctx, pool, "outbox_late", func(p sink.Position, id uuid.UUID) {
		if row, ok := s.seen(p, id); ok {
			seqs, ids, markers = append(seqs, int64(p)), append(ids, id), append(markers, int64(row.At)) // a stream has fewer messages
		} else if p > s.Pos {
			if s.Seen == nil {
				s.Seen = map[string]session.Stored{}
			}
			s.Seen[p.String()] = session.Stored{ID: id.String()}
			s.SeenTo = max(s.SeenTo, p)
		}
	}, sqlDiscarded, s.Shard)
	if err != nil || len(seqs) == 0 {
		return err
	}
	if _, err := pool.Exec(ctx, sqlPublishedBeside, slices.Repeat([]int{s.Shard}, len(seqs)), seqs, ids, markers); err != nil {
		return fmt.Errorf("relay: cannot write outbox_late: %w", err)
	}
	return nil
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
