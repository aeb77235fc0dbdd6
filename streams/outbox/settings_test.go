package outbox

import (
	"net/url"
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

// A slot that was given up with the mode wal stays when that is back before it could be dropped: a relay may read it again. When none
// has, it goes with the mode the next time; where the change was cut off before it was dropped, it goes when that is asked for again.
func TestASlotStaysWhenItsModeIsBack(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		dsn, conn := setup(t, WAL)
		pool := open(t, dsn).Pool
		slot := one[string](t, conn, `select 's' || left(md5(current_database()), 20)`)
		run(t, conn, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
		run(t, conn, `create publication `+slot+`_none`)
		run(t, conn, `insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster, slot) values ('main', 'wal', 0, '', '', 1, '', $1)`, slot)
		there := func() int {
			return one[int](t, conn, `select count(*)::int from pg_replication_slots where slot_name = $1`, slot)
		}
		changed, locked := make(chan error, 1), make(chan error, 1)
		writer, err := pool.Begin(t.Context()) // the change waits for it with the settings locked
		require.NoError(t, err)
		_, err = writer.Exec(t.Context(), `lock table outbox_log in row exclusive mode`)
		require.NoError(t, err)
		go func() { changed <- Init(t.Context(), dsn, "", Settings{Mode: Log}) }()
		blocked(t, pool, 1)
		behind := dial(t, dsn)
		go func() { // gets them before the slot can be dropped
			_, err := behind.Exec(t.Context(), `begin; lock table outbox_settings in access exclusive mode`)
			locked <- err
		}()
		blocked(t, pool, 2)
		require.NoError(t, writer.Commit(t.Context()))
		require.NoError(t, <-locked)
		blocked(t, pool, 1)
		if cut {
			run(t, behind, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
			require.Error(t, <-changed)
			run(t, behind, `rollback`)
		} else {
			run(t, behind, `update outbox_settings set mode = 'wal'`)
			run(t, behind, `commit`)
			require.NoError(t, <-changed)
		}
		require.Equal(t, 1, there())
		require.NoError(t, Init(t.Context(), dsn, "", Settings{Mode: Log}))
		require.Zero(t, there())
		require.Empty(t, one[string](t, conn, `select slot from outbox_stream`))
	}
}

// What somebody else has under a name that is noted for a slot stays: it is not of this outbox.
func TestSlotsOfOthersStay(t *testing.T) {
	t.Parallel()
	for _, elsewhere := range []bool{false, true} {
		dsn, conn := setup(t, Log)
		other, plugin := conn, "test_decoding"
		if elsewhere {
			other, plugin = dial(t, pg.Database(t)), "pgoutput"
		}
		slot := one[string](t, conn, `select 'o' || left(md5(current_database()), 20)`)
		run(t, other, `select pg_create_logical_replication_slot($1, $2)`, slot, plugin)
		run(t, conn, `insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster, slot) values ('main', 'wal', 0, '', '', 1, '', '?' || $1)`, slot)
		require.NoError(t, DropSlot(t.Context(), dsn, "", slot, true))
		require.NoError(t, Init(t.Context(), dsn, "", Settings{Mode: Log}))
		require.Empty(t, one[string](t, conn, `select slot from outbox_stream`))
		run(t, other, `select pg_drop_replication_slot($1)`, slot)
	}
}

// A name that is noted while another change forgets those of slots that it has dropped stays, when its slot is there.
func TestASlotThatIsMadeWhileOthersAreForgotten(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Log)
	pool := open(t, dsn).Pool
	slot := one[string](t, conn, `select 'f' || left(md5(current_database()), 20)`)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `lock table outbox_stream in share mode`)
	require.NoError(t, err)
	changed := make(chan error, 1)
	go func() { changed <- Init(t.Context(), dsn, "", Settings{Mode: Log}) }()
	blocked(t, pool, 1)
	run(t, conn, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	_, err = tx.Exec(t.Context(), `insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster, slot) values ('main', 'wal', 0, '', '', 1, '', '?' || $1)`, slot)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-changed)
	require.NoError(t, Init(t.Context(), dsn, "", Settings{Mode: Log}))
	require.Zero(t, one[int](t, conn, `select count(*)::int from pg_replication_slots where slot_name = $1`, slot))
}

// A relay of another mode has no slot: what has the name that it would have is of another outbox of the database. Its DSN may have settings of
// the pool.
func TestASlotOfAnotherOutboxStays(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Log)
	slot := one[string](t, conn, `select 'n' || left(md5(current_database()), 20)`)
	run(t, conn, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("pool_max_conns", "5")
	u.RawQuery = q.Encode()
	require.NoError(t, DropSlot(t.Context(), u.String(), "", slot, true))
	require.Equal(t, 1, one[int](t, conn, `select count(*)::int from pg_replication_slots where slot_name = $1`, slot))
	run(t, conn, `select pg_drop_replication_slot($1)`, slot)
}
