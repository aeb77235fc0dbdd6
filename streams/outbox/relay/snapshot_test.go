package relay

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// A transaction that has its snapshot from before a change of mode or shards sees the old settings until it ends. What it
// appends then would be where no relay looks: it is refused as every serialization failure, and the application's retry
// appends it. Each statement of a read committed transaction sees what holds.
func TestAnOldSnapshotDoesNotAppendByOldSettings(t *testing.T) {
	t.Parallel()
	for _, change := range []struct {
		from, to outbox.Settings
	}{
		{outbox.Settings{Mode: outbox.Log}, outbox.Settings{Mode: outbox.Claim}},
		{outbox.Settings{Mode: outbox.Claim}, outbox.Settings{Mode: outbox.Log}},
		{outbox.Settings{Mode: outbox.Log, Shards: 8}, outbox.Settings{Mode: outbox.Log, Shards: 2}},
		{outbox.Settings{Mode: outbox.Claim, Shards: 2}, outbox.Settings{Mode: outbox.Claim, Shards: 8}},
	} {
		t.Run(fmt.Sprint(change.from.Mode, change.from.Shards, "To", change.to.Mode, change.to.Shards), func(t *testing.T) {
			t.Parallel()
			s := openShop(t, change.from.Mode)
			require.NoError(t, outbox.Init(s.ctx, s.dsn, "", change.from))
			open := map[pgx.TxIsoLevel]pgx.Tx{}
			for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable, pgx.ReadCommitted} {
				tx, err := s.pool.BeginTx(s.ctx, pgx.TxOptions{IsoLevel: level})
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(s.ctx) }()
				_, err = tx.Exec(s.ctx, `select count(*) from pg_class`) // takes the snapshot
				require.NoError(t, err)
				open[level] = tx
			}
			require.NoError(t, outbox.Init(s.ctx, s.dsn, "", change.to))
			want := 0
			for level, tx := range open {
				for n := range 8 { // one of them is of a shard that is no more
					_, err := tx.Exec(s.ctx, `select outbox_append('order', $1, 'order.paid', '{"n": 1}')`, fmt.Sprint("o-", n))
					if level == pgx.ReadCommitted {
						require.NoError(t, err)
						want++
						continue
					}
					var refused *pgconn.PgError
					require.ErrorAs(t, err, &refused, level)
					require.Equal(t, "40001", refused.Code, refused.Message)
					break
				}
				if level == pgx.ReadCommitted {
					require.NoError(t, tx.Commit(s.ctx))
				}
			}
			s.run(s.relay(change.to.Mode))
			s.add("o-1", 2)
			s.eventually(want + 1)
			if change.to.Mode == outbox.Claim {
				s.checkEvents()
			} else {
				s.check()
			}
		})
	}
}
