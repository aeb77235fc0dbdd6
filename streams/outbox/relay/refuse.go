package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
)

// How often, and how far apart, it is tried to refuse those with an older snapshot as well; applications wait behind each try for as
// long as it may take.
const (
	renewTries = 6
	renewEvery = 500 * time.Millisecond
	renewWait  = "100ms"
)

// refuseAppends lets nothing be emitted while there is no slot that sees it: it was dropped, lost, or is in the cluster that the
// tables were restored from. Transactions in repeatable read or serializable that began before are refused as well, unless one that
// has appended stays open for longer than it is tried, or the role of the relay may not. So it is tried by each relay that finds
// that a slot was read and none is: nobody knows whether an earlier one has come so far.
func (r *Relay) refuseAppends(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `update outbox_settings set wal_slot = null where wal_slot is not null
		and not exists (select from pg_replication_slots where slot_name = wal_slot::name and `+outbox.SlotReadable+`)`)
	if err != nil {
		return fmt.Errorf("relay: cannot say that the WAL is not read: %w", err)
	}
	var gone bool
	if err := pool.QueryRow(ctx, `select wal_slot is null and exists (select from outbox_stream where mode = 'wal' and `+outbox.SlotRead+`) from outbox_settings`).Scan(&gone); err != nil {
		return fmt.Errorf("relay: cannot ask whether the WAL is read: %w", err)
	}
	if !gone {
		return nil
	}
	for try := range renewTries {
		if try > 0 && !sleep(ctx, renewEvery) {
			break
		}
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `set local lock_timeout = '`+renewWait+`'`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `select outbox_settings_renew()`)
			return err
		})
		if refused := (*pgconn.PgError)(nil); !errors.As(err, &refused) || refused.Code != "55P03" { // lock_not_available
			break
		}
	}
	if err != nil {
		r.Log.Warn("the slot is gone and appending is refused, but maybe not in transactions in repeatable read or serializable that began before", "error", err)
	}
	return nil
}
