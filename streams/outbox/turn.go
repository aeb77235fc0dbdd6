package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Turn is MarkSent of one batch and ClaimNextBatch in one transaction: a worker that does nothing else commits once for
// each batch. done may be nil.
func (s *Store) Turn(ctx context.Context, done *Batch, sent []uuid.UUID, worker string, shards []int, n int) (*Batch, Lost, error) {
	b := &Batch{Token: uuid.New()}
	small := make([]int16, len(shards))
	for i, shard := range shards {
		small[i] = int16(shard) //nolint:gosec // there are at most 64
	}
	var marked []uuid.UUID
	var q pgx.Batch
	if done != nil && len(sent) > 0 {
		q.Queue(sqlMarkSent, sent, done.Token).Query(func(rows pgx.Rows) (err error) {
			marked, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			return err
		})
	}
	q.Queue(sqlReleaseExpired, s.attempts())
	q.Queue(sqlClaim, small, n, worker, s.lease(), b.Token).Query(func(rows pgx.Rows) error { return b.read(rows) })
	if err := s.Pool.SendBatch(ctx, &q).Close(); err != nil {
		return nil, nil, fmt.Errorf("outbox: cannot mark and claim: %w", err)
	}
	slices.SortFunc(b.Rows, func(x, y Row) int { return cmp.Compare(x.Seq, y.Seq) })
	return b, missing(sent, marked), nil
}

// Settle is for a worker that has fenced all others off and knows what they stored before that: those rows are marked as
// sent, whoever holds them, and all other leases end.
func (s *Store) Settle(ctx context.Context, sent []uuid.UUID) error {
	var q pgx.Batch
	q.Queue(sqlSettleSent, sent)
	q.Queue(sqlSettleLeases, s.attempts())
	if err := s.Pool.SendBatch(ctx, &q).Close(); err != nil {
		return fmt.Errorf("outbox: cannot settle what others have claimed: %w", err)
	}
	return nil
}

// MarkStored is for rows that are known to be in the stream, whoever holds them by now.
func (s *Store) MarkStored(ctx context.Context, sent []uuid.UUID) error {
	if _, err := s.Pool.Exec(ctx, sqlSettleSent, sent); err != nil {
		return fmt.Errorf("outbox: cannot mark rows as sent: %w", err)
	}
	return nil
}

const sqlSettleSent = `
	update outbox_event set status = 'SENT', sent_at = now(), locked_by = null, locked_until = null, lease_token = null, updated_at = now()
	where event_id = any ($1) and status <> 'SENT'`

const sqlSettleLeases = `
	update outbox_event set status = case when attempts >= $1 then 'DEAD' else 'NEW' end,
		next_retry_at = case when attempts >= $1 then 'infinity' else now() end,
		last_error = 'the lease of ' || locked_by || ' was ended', locked_by = null, locked_until = null, lease_token = null, updated_at = now()
	where status = 'SENDING'`
