package outbox

import (
	"context"
	"fmt"
	"log/slog"
)

// Transport publishes one message of mode claim somewhere else than a relay does. It may publish a message again: what it
// reaches tells repetitions by the id.
type Transport interface {
	Publish(ctx context.Context, m *Message) error
}

// LoggingTransport only says what it would publish. A nil Log is slog's default.
type LoggingTransport struct{ Log *slog.Logger }

// Publish logs the message, without its payload.
func (t LoggingTransport) Publish(ctx context.Context, m *Message) error {
	log := t.Log
	if log == nil {
		log = slog.Default()
	}
	log.InfoContext(ctx, "event", "id", m.ID, "aggregate", m.AggregateType+"/"+m.AggregateID, "type", m.EventType, "bytes", len(m.Payload))
	return nil
}

// RelayOnce claims up to n rows that are due, publishes each over the transport, and marks it as sent or failed: at least
// once, in order per aggregate. It returns how many were published. It is for transports beside JetStream, with a trigger of the
// caller's own (one second is usual) and in mode claim only; no relay may run on the same outbox. Several callers may, each
// with a name of its own. What takes longer than the store's Lease may be published again by another.
func (s *Store) RelayOnce(ctx context.Context, transport Transport, worker string, n int) (int, error) {
	var mode Mode
	if err := s.Pool.QueryRow(ctx, `select mode from outbox_settings`).Scan(&mode); err != nil {
		return 0, fmt.Errorf("outbox: cannot read the settings: %w", Pooled(err))
	}
	if mode != Claim {
		return 0, fmt.Errorf("outbox: the database is in mode %s, a transport of one's own needs mode claim", mode)
	}
	batch, err := s.ClaimNextBatch(ctx, worker, nil, n)
	if err != nil {
		return 0, err
	}
	type aggregate struct{ typ, id string }
	bad := map[aggregate]bool{}
	published := 0
	for i := range batch.Rows {
		r := &batch.Rows[i]
		of := aggregate{r.AggregateType, r.AggregateID}
		one := batch.IDs()[i : i+1]
		switch {
		case bad[of] || ctx.Err() != nil: // untried
			_, err = s.Release(context.WithoutCancel(ctx), batch, one)
		default:
			if why := transport.Publish(ctx, &r.Message); why != nil {
				bad[of] = true
				_, _, err = s.MarkFailed(context.WithoutCancel(ctx), batch, []Failure{{ID: r.ID, Error: why.Error()}})
				break
			}
			published++
			_, err = s.MarkSent(context.WithoutCancel(ctx), batch, one)
		}
		if err != nil {
			return published, err
		}
	}
	return published, ctx.Err()
}
