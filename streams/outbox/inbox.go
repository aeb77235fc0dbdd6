package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Inbox lets each handler handle an event once, if its effect is in this database: the mark is in the transaction of the
// effect. Several handlers of one event do not take it from each other. The zero value is for an outbox in the schema public.
type Inbox struct{ Schema string }

// Handle calls do if this handler has not handled the event, and reports whether it did. The id is that of the event (ce-id,
// Nats-Msg-Id); the handler is a name that stays, for under another one all events are new. The mark is committed with the transaction;
// if another transaction is just handling the same event, Handle waits for it. do may append events in the same
// transaction. An error of do is returned as it is, and the transaction must be rolled back then.
func (i Inbox) Handle(ctx context.Context, tx pgx.Tx, eventID, handler string, do func() error) (first bool, err error) {
	query, err := i.query()
	if err != nil {
		return false, err
	}
	tag, err := tx.Exec(ctx, query, eventID, handler)
	if err != nil {
		return false, fmt.Errorf("outbox: inbox of %s: %w", handler, err)
	}
	if tag.RowsAffected() == 0 {
		return false, nil
	}
	return true, do()
}

// HandleSQL is [Inbox.Handle] for database/sql.
func (i Inbox) HandleSQL(ctx context.Context, tx *sql.Tx, eventID, handler string, do func() error) (first bool, err error) {
	query, err := i.query()
	if err != nil {
		return false, err
	}
	result, err := tx.ExecContext(ctx, query, eventID, handler)
	if err != nil {
		return false, fmt.Errorf("outbox: inbox of %s: %w", handler, err)
	}
	n, err := result.RowsAffected()
	if err != nil || n == 0 {
		return false, err
	}
	return true, do()
}

const sqlHandle = `insert into %s.outbox_inbox (event_id, handler) values ($1::text, $2::text) on conflict do nothing`

func (i Inbox) query() (string, error) {
	schema := i.Schema
	if schema == "" {
		schema = "public"
	}
	if !schemaName.MatchString(schema) {
		return "", fmt.Errorf("outbox: %q is no name of a schema: letters, digits and _", schema)
	}
	return fmt.Sprintf(sqlHandle, pgx.Identifier{schema}.Sanitize()), nil
}

// PurgeInbox forgets what was handled longer ago than the inbox retention of the settings, which is by default twice as long
// as the stream keeps its messages (streamAge) and 14 days at least; never what the stream still has, because that may be
// delivered again. With streamAge 0, a stream that keeps them for ever or is not known, it forgets nothing unless the
// settings say when. It returns how many that were. A relay calls it once an hour.
func (s *Store) PurgeInbox(ctx context.Context, streamAge time.Duration) (int64, error) {
	total := int64(0)
	for {
		tag, err := s.Pool.Exec(ctx, sqlPurgeInbox, streamAge.Seconds(), most)
		if err != nil {
			return total, fmt.Errorf("outbox: cannot purge the inbox: %w", err)
		}
		if total += tag.RowsAffected(); tag.RowsAffected() < most {
			return total, nil
		}
	}
}

const sqlPurgeInbox = `
	delete from outbox_inbox where ctid = any (array(
		select ctid from outbox_inbox where handled_at < now() - (
			select case when $1::float8 > 0 then greatest(make_interval(secs => $1),
				coalesce(inbox_retention, greatest(2 * make_interval(secs => $1), interval '14 days'))) else inbox_retention end from outbox_settings)
		order by handled_at limit $2 for update skip locked))`
