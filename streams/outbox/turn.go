package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Worker claims and marks on a connection of its own, one turn after the other. Its commits do not wait for the disk: when
// the database crashes, the last of them are undone, and the connection of the worker ends with them. So a worker that goes
// on has lost nothing; one that cannot must find out elsewhere what it had published, and say so with [Store.Settle].
type Worker struct {
	Store *Store
	Name  string // in locked_by

	conn *pgxpool.Conn
}

// Open takes a connection of the store's pool, until Close.
func (w *Worker) Open(ctx context.Context) (err error) {
	if w.conn, err = w.Store.Pool.Acquire(ctx); err != nil {
		return fmt.Errorf("outbox: cannot connect: %w", err)
	}
	return nil
}

// Close gives the connection back.
func (w *Worker) Close() { w.conn.Release() }

// sqlAsync is for one transaction.
const sqlAsync = `select set_config('synchronous_commit', 'off', true)`

// Turn is MarkSent of one batch and ClaimNextBatch in one transaction: a worker that does nothing else commits once for
// each batch. done may be nil.
func (w *Worker) Turn(ctx context.Context, done *Batch, sent []uuid.UUID, shards []int, n int) (*Batch, Lost, error) {
	b := &Batch{Token: uuid.New()}
	var marked []uuid.UUID
	var q pgx.Batch
	q.Queue(sqlAsync)
	if done != nil && len(sent) > 0 {
		q.Queue(sqlMarkSent, uuids(sent), done.Token).Query(func(rows pgx.Rows) (err error) {
			marked, err = readIDs(rows, len(sent))
			return err
		})
	}
	b.claim(&q, w.Store, w.Name, shards, n)
	if err := w.conn.SendBatch(ctx, &q).Close(); err != nil {
		return nil, nil, fmt.Errorf("outbox: cannot mark and claim: %w", err)
	}
	slices.SortFunc(b.Rows, func(x, y Row) int { return cmp.Compare(x.Seq, y.Seq) })
	return b, missing(sent, marked), nil
}

// MarkSent is that of the store.
func (w *Worker) MarkSent(ctx context.Context, b *Batch, ids []uuid.UUID) (Lost, error) {
	return mark(ctx, w.conn, "mark rows as sent", sqlMarkSent, ids, b.Token)
}

// Flush returns when all that was committed before, by any worker whose connection still stands, survives a crash.
func (w *Worker) Flush(ctx context.Context) error {
	if _, err := w.conn.Exec(ctx, sqlFlush); err != nil {
		return fmt.Errorf("outbox: cannot write the log of the database: %w", err)
	}
	return nil
}

// sqlFlush commits something, at least on this disk.
const sqlFlush = `
	select set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'local' else current_setting('synchronous_commit') end, true),
		pg_logical_emit_message(true, 'instar.flush', '')`

// Settle is for a worker that has fenced all others off and knows what they stored before that: those rows are marked as
// sent, whoever holds them, and all other leases end.
func (s *Store) Settle(ctx context.Context, sent []uuid.UUID) error {
	var q pgx.Batch
	q.Queue(sqlSettleSent, uuids(sent))
	q.Queue(sqlSettleLeases, s.attempts())
	if err := s.Pool.SendBatch(ctx, &q).Close(); err != nil {
		return fmt.Errorf("outbox: cannot settle what others have claimed: %w", err)
	}
	return nil
}

// MarkStored is for rows that are known to be in the stream, whoever holds them by now.
func (s *Store) MarkStored(ctx context.Context, sent []uuid.UUID) error {
	if _, err := s.Pool.Exec(ctx, sqlSettleSent, uuids(sent)); err != nil {
		return fmt.Errorf("outbox: cannot mark rows as sent: %w", err)
	}
	return nil
}

const sqlSettleSent = `
	update outbox_event set status = 'SENT', sent_at = now(), locked_by = null, locked_until = null, lease_token = null, updated_at = now()
	where event_id = any ($1) and status <> 'SENT'`

// sqlSettleLeases reads all rows that wait: it is for the start of a relay.
const sqlSettleLeases = `
	update outbox_event set status = case when attempts >= $1 then 'DEAD' else 'NEW' end,
		next_retry_at = case when attempts >= $1 then 'infinity' else now() end,
		last_error = 'the lease of ' || locked_by || ' was ended', locked_by = null, locked_until = null, lease_token = null, updated_at = now()
	where event_id = any (array(
		select event_id from outbox_event where phase < 2 and status = 'SENDING' order by shard, next_retry_at, seq))`
