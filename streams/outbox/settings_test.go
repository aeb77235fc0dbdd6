package outbox

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Nobody who has seen the old mode writes in it after the change: the row would never be read.
func TestAppendDuringAChangeOfTheMode(t *testing.T) {
	t.Parallel()
	dsn := pg.Database(t)
	require.NoError(t, Init(t.Context(), dsn, "", Settings{Mode: Log}))
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select * from outbox_settings for update`)
	require.NoError(t, err)
	done := make(chan error, 2)
	go func() { done <- Init(t.Context(), dsn, "", Settings{Mode: Claim}) }()
	blocked(t, pool, 1)
	go func() {
		_, err := pool.Exec(t.Context(), `select outbox_append('order', 'o-1', 'order.paid', '{}')`)
		done <- err
	}()
	blocked(t, pool, 2)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	var events, log int
	require.NoError(t, pool.QueryRow(t.Context(), `select (select count(*) from outbox_event), (select count(*) from outbox_log)`).Scan(&events, &log))
	require.Equal(t, []int{1, 0}, []int{events, log}, "rows of claim and of log")
}

// blocked waits until so many sessions of the database wait for a lock.
func blocked(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var have int
		require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&have))
		return have == n
	}, 20*time.Second, 5*time.Millisecond)
}

// What somebody else changes while the settings are renewed stays.
func TestSettingsThatChangeWhileTheyAreRenewed(t *testing.T) {
	t.Parallel()
	dsn, _ := setup(t, Log)
	pool := open(t, dsn).Pool
	for lag, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `update outbox_settings set max_lag = $1`, 77+lag)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			done <- pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), `select count(*) from pg_class`); err != nil { // its snapshot is of now
					return err
				}
				_, err := tx.Exec(t.Context(), `select outbox_settings_renew()`)
				return err
			})
		}()
		blocked(t, pool, 1)
		require.NoError(t, tx.Commit(t.Context()))
		if err := <-done; level == pgx.ReadCommitted {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "40001")
		}
		var have int
		require.NoError(t, pool.QueryRow(t.Context(), `select max_lag from outbox_settings`).Scan(&have))
		require.Equal(t, 77+lag, have, level)
	}
}

// Both rely on statements that see what was committed before they began, whoever calls them.
func TestFenceAndMaintenanceNeedReadCommitted(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, Log)
	for _, call := range []string{`select outbox_fence()`, `select outbox_maintain()`} {
		for level, code := range map[pgx.TxIsoLevel]string{pgx.RepeatableRead: "25001", pgx.Serializable: "25001", pgx.ReadCommitted: ""} {
			tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), call)
			if code == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, code)
			}
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
}

// Timeouts that a role or a database has by default are not those of an outbox.
func TestNoTimeoutsByDefault(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Log)
	database := one[string](t, conn, `select current_database()`)
	for _, timeout := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"} {
		run(t, conn, `alter database "`+database+`" set `+timeout+` = '77min'`)
		require.Equal(t, "77min", one[string](t, dial(t, dsn), `select current_setting($1)`, timeout))
		var is string
		require.NoError(t, open(t, dsn).Pool.QueryRow(t.Context(), `select current_setting($1)`, timeout).Scan(&is))
		require.Equal(t, "0", is)
	}
}
