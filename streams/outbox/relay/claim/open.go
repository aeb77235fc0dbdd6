package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// open fences all others off, and marks what they stored.
func (e *Lanes) open(ctx context.Context) error {
	opener := e.Shards.Opener
	if _, err := opener.NotRegressed(ctx, 0); err != nil {
		return err
	}
	s, err := opener.Open(ctx, 0, 0)
	if err != nil {
		return err
	}
	if s.Back {
		e.Control.Log.Error("the database was set back to an older state (failover, restore): what the stream has is marked as sent")
	}
	ids := make([]uuid.UUID, 0, len(s.Seen))
	for key := range s.Seen {
		if id, err := uuid.Parse(key); err == nil {
			ids = append(ids, id)
		}
	}
	if err := e.whole(ctx, s, ids); err != nil {
		return err
	}
	if err := e.Store.Settle(ctx, ids); err != nil {
		return err
	}
	if err := opener.Note(ctx, s); err != nil {
		return err
	}
	s.Seen = nil
	e.Shards.Opened(s)
	e.Control.Log.Info("claiming rows", "readBack", len(ids))
	return nil
}

// sentUpTo is when the last row was marked as sent, in microseconds by the clock of the database: the position of mode claim.
func (e *Lanes) sentUpTo(ctx context.Context) (sink.Position, error) {
	var at int64
	err := e.Store.Pool.QueryRow(ctx, sqlSentUpTo).Scan(&at)
	if err != nil {
		return 0, fmt.Errorf("relay: cannot ask what was sent last: %w", err)
	}
	return sink.Position(at), nil // after 1970
}

const sqlSentUpTo = `select coalesce((select (extract(epoch from sent_at) * 1000000)::bigint from outbox_event where phase = 2 order by sent_at desc limit 1), 0)`

// whole makes sure that the stream has what was marked as sent after its last marker: all that was sent before it was marked
// before it. stored is what the stream has since.
func (e *Lanes) whole(ctx context.Context, s *session.Session, stored []uuid.UUID) error {
	if s.Pos == 0 { // the first one, or of a version that kept no position
		return nil
	}
	var missing string
	err := e.Store.Pool.QueryRow(ctx, sqlMissing, int64(s.Pos), stored).Scan(&missing)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("relay: cannot compare what was sent with the stream: %w", err)
	}
	return fmt.Errorf("%w (event %s is the first)", s.Regressed(), missing)
}

// sqlMissing is the first row that was sent after a time and is not among those.
const sqlMissing = `
	select event_id::text from outbox_event e where phase = 2 and sent_at > timestamptz 'epoch' + $1::bigint * interval '1 microsecond'
		and not exists (select from unnest($2::uuid[]) as s (id) where s.id = e.event_id)
	order by sent_at limit 1`
