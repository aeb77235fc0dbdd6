package deliver

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// history is a shard that was opened, with what earlier sessions left there.
type history struct {
	*session.Session
	lost  map[uuid.UUID]uint64        // events that the stream has and the table does not, and where
	aside map[sink.Position]uuid.UUID // ids of rows that earlier sessions parked beyond the position: they are read again
}

// Compare takes in a shard that is being opened: what earlier sessions stored is compared with the tables. What was parked and published
// since, and is lost by the stream, is parked again; it refuses to go on when something of that is gone, unless that was accepted.
func (d *Deliverer) Compare(ctx context.Context, s *session.Session, accepted bool) error {
	h := &history{Session: s}
	if err := h.reclaim(ctx, d.Pool, accepted); err != nil {
		return err
	}
	if err := h.prune(ctx, d.Pool); err != nil {
		return err
	}
	if d.opened == nil {
		d.opened = map[int]*history{}
	}
	d.opened[s.Shard] = h
	return nil
}

// stored says whether an earlier session stored the row.
func (s *history) stored(r *sink.Row) bool {
	_, ok := s.storedAt(r)
	return ok
}

// storedAt is where in the stream that is.
func (s *history) storedAt(r *sink.Row) (at uint64, ok bool) {
	if len(s.lost) > 0 {
		if at, ok := s.lost[r.ID]; ok {
			return at, true
		}
	}
	if len(s.Seen) == 0 || r.Pos > s.SeenTo {
		return 0, false
	}
	there, ok := s.seen(r.Pos, r.ID)
	return there.At, ok
}

// seen looks for a row among those that were read back.
func (s *history) seen(p sink.Position, id uuid.UUID) (row session.Stored, ok bool) {
	row, ok = s.Seen[p.String()]
	return row, ok && row.ID == id.String()
}

// prune compares what was read back with the table. Rows that a database lost which was set back are not there; an application
// that did not hear of its commit appends them once more, under other numbers and the same ids, now or later.
func (s *history) prune(ctx context.Context, pool *pgxpool.Pool) error {
	if len(s.Seen) == 0 {
		return nil
	}
	there, last := make(map[string]session.Stored, len(s.Seen)), sink.Position(0)
	found := func(p sink.Position, row session.Stored) {
		if there[p.String()] = row; p > last {
			last = p
		}
	}
	missing := make(map[uuid.UUID]sink.Position, len(s.Seen))
	keys := make([]int64, 0, len(s.Seen))
	for key, row := range s.Seen {
		id, err := uuid.Parse(row.ID)
		p, wrong := sink.ParsePosition(key)
		if err == nil && wrong == nil {
			keys, missing[id] = append(keys, int64(p)), p
		}
	}
	err := match(ctx, pool, `select l.seq, l.event_id from unnest($1::bigint[]) as k (seq) cross join lateral (select * from outbox_log l where l.seq = k.seq limit 1) as l`, keys, func(p sink.Position, id uuid.UUID) {
		if row, ok := s.seen(p, id); ok {
			found(p, row)
			delete(missing, id)
		}
	})
	if err != nil {
		return err
	}
	ids := slices.Collect(maps.Keys(missing))
	s.lost = map[uuid.UUID]uint64{}
	for id, p := range missing {
		if p > s.Pos { // a row before it was dropped for its age
			s.lost[id] = s.Seen[p.String()].At
		}
	}
	err = match(ctx, pool, `select seq, event_id from outbox_log where event_id = any ($1)`, ids, func(p sink.Position, id uuid.UUID) {
		delete(s.lost, id)
		if _, own := there[p.String()]; !own {
			found(p, s.Seen[missing[id].String()])
		}
	})
	if err != nil {
		return err
	}
	s.Seen, s.SeenTo = there, last
	return nil
}

// match calls found for rows of outbox_log, of a query that takes a list.
func match[T any](ctx context.Context, pool *pgxpool.Pool, query string, list []T, found func(sink.Position, uuid.UUID)) error {
	for some := range slices.Chunk(list, 10000) {
		if err := eachEvent(ctx, pool, "outbox_log", found, query, some); err != nil {
			return err
		}
	}
	return nil
}

// eachEvent calls found for the rows of a query of sequence numbers and ids in a table.
func eachEvent(ctx context.Context, db database, table string, found func(sink.Position, uuid.UUID), query string, args ...any) error {
	var p sink.Position
	var id uuid.UUID
	return each(ctx, db, table, []any{&p, &id}, func() error { found(p, id); return nil }, query, args...)
}

// each scans the rows of a query of a table one by one, and calls next after each.
func each(ctx context.Context, db database, table string, into []any, next func() error, query string, args ...any) error {
	rows, err := db.Query(ctx, query, args...)
	if err == nil {
		_, err = pgx.ForEachRow(rows, into, next)
	}
	if err != nil {
		return fmt.Errorf("relay: cannot read %s: %w", table, err)
	}
	return nil
}
