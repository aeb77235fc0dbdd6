package outbox

// What became of the rows of a Batch that was claimed (claim.go). The lanes of a relay (relay/claim/lane.go) mark rows as sent when they are in the stream, as failed when they
// were refused, and release those behind them; whoever needs longer renews the lease. Each update changes only rows that still have the token of the batch, and the others come
// back as Lost.

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Lost are rows that were not marked, because their lease had ended and somebody else may have them by now. That is no error, but worth reporting: they are published again.
type Lost []uuid.UUID

// asker is a pool or a connection of it.
type asker interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

// mark runs an update that returns the ids that it changed, and says which are missing.
func mark(ctx context.Context, db asker, what, query string, ids []uuid.UUID, args ...any) (Lost, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := db.Query(ctx, query, append([]any{uuids(ids)}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("outbox: cannot %s: %w", what, err)
	}
	done, err := readIDs(rows, len(ids))
	if err != nil {
		return nil, fmt.Errorf("outbox: cannot %s: %w", what, err)
	}
	return missing(ids, done), nil
}

// uuids are ids as a parameter in binary form. Without it, each would be written as text and parsed again.
func uuids(ids []uuid.UUID) pgtype.FlatArray[pgtype.UUID] {
	list := make(pgtype.FlatArray[pgtype.UUID], len(ids))
	for i, id := range ids {
		list[i] = pgtype.UUID{Bytes: id, Valid: true}
	}
	return list
}

// readIDs reads rows of one id.
func readIDs(rows pgx.Rows, n int) ([]uuid.UUID, error) {
	list := make([]uuid.UUID, 0, n)
	var id pgtype.UUID
	_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		list = append(list, id.Bytes)
		return nil
	})
	return list, err
}

func missing(ids, done []uuid.UUID) Lost {
	if len(done) == len(ids) {
		return nil
	}
	known := make(map[uuid.UUID]bool, len(done))
	for _, id := range done {
		known[id] = true
	}
	var lost Lost
	for _, id := range ids {
		if !known[id] {
			lost = append(lost, id)
		}
	}
	return lost
}

// IDs are those of all rows of the batch.
func (b *Batch) IDs() []uuid.UUID {
	ids := make([]uuid.UUID, len(b.Rows))
	for i := range b.Rows {
		ids[i] = b.Rows[i].ID
	}
	return ids
}

// MarkSent records that rows of the batch are in the stream.
func (s *Store) MarkSent(ctx context.Context, b *Batch, ids []uuid.UUID) (Lost, error) {
	return mark(ctx, s.Pool, "mark rows as sent", sqlMarkSent, ids, b.Token)
}

const sqlMarkSent = `
	update outbox_event set status = 'SENT', sent_at = now(), locked_by = null, locked_until = null, lease_token = null, updated_at = now()
	where event_id = any ($1) and status = 'SENDING' and lease_token = $2 returning event_id`

// Release gives rows of the batch back untried, such as those behind one that failed.
func (s *Store) Release(ctx context.Context, b *Batch, ids []uuid.UUID) (Lost, error) {
	return mark(ctx, s.Pool, "release rows", sqlRelease, ids, b.Token)
}

const sqlRelease = `
	update outbox_event set status = case when last_error is null then 'NEW' else 'FAILED' end, attempts = attempts - 1, next_retry_at = now(),
		locked_by = null, locked_until = null, lease_token = null, updated_at = now()
	where event_id = any ($1) and status = 'SENDING' and lease_token = $2 returning event_id`

// Renew starts the lease of these rows of the batch again.
func (s *Store) Renew(ctx context.Context, b *Batch, ids []uuid.UUID) (Lost, error) {
	return mark(ctx, s.Pool, "renew a lease", sqlRenew, ids, b.Token, s.lease())
}

const sqlRenew = `
	update outbox_event set locked_until = now() + $3 * interval '1 second', updated_at = now()
	where event_id = any ($1) and status = 'SENDING' and lease_token = $2 returning event_id`

// Failure is a row that could not be published.
type Failure struct {
	ID    uuid.UUID
	Error string
	Final bool // no other try will help: DEAD at once
}

// Failed is what became of a row that could not be published.
type Failed struct {
	ID       uuid.UUID
	State    string        // StateFailed, or StateDead after the last attempt
	Attempts int           // made so far
	Wait     time.Duration // until the next one
}

// MarkFailed makes rows of the batch wait for their next try, or DEAD after the last. Their aggregates wait with them.
func (s *Store) MarkFailed(ctx context.Context, b *Batch, failures []Failure) ([]Failed, Lost, error) {
	ids, texts, final := make([]uuid.UUID, len(failures)), make([]string, len(failures)), make([]bool, len(failures))
	for i, f := range failures {
		ids[i], texts[i], final[i] = f.ID, f.Error, f.Final
	}
	rows, err := s.Pool.Query(ctx, sqlMarkFailed, uuids(ids), texts, final, b.Token, s.attempts(),
		cmp.Or(s.BaseBackoff, time.Second).Seconds(), cmp.Or(s.MaxBackoff, 300*time.Second).Seconds())
	if err != nil {
		return nil, nil, fmt.Errorf("outbox: cannot mark rows as failed: %w", err)
	}
	done, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (Failed, error) {
		var f Failed
		var seconds float64
		err := r.Scan(&f.ID, &f.State, &f.Attempts, &seconds)
		f.Wait = time.Duration(seconds * float64(time.Second))
		return f, err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("outbox: cannot mark rows as failed: %w", err)
	}
	marked := make([]uuid.UUID, len(done))
	for i := range done {
		marked[i] = done[i].ID
	}
	return done, missing(ids, marked), nil
}

const sqlMarkFailed = `
	update outbox_event e set status = case when f.final or e.attempts >= $5 then 'DEAD' else 'FAILED' end,
		next_retry_at = case when f.final or e.attempts >= $5 then 'infinity'
			else now() + least($6 * power(2, least(e.attempts - 1, 40)), $7) * interval '1 second' end,
		last_error = left(f.error, 4000), locked_by = null, locked_until = null, lease_token = null, updated_at = now()
	from unnest($1::uuid[], $2::text[], $3::boolean[]) as f (id, error, final)
	where e.event_id = f.id and e.status = 'SENDING' and e.lease_token = $4
	returning e.event_id, e.status, e.attempts,
		case when e.status = 'DEAD' then 0 else extract(epoch from e.next_retry_at - now()) end::float8`
