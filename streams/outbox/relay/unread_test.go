package relay

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

func (s *shop) status() outbox.Status {
	s.t.Helper()
	store, err := outbox.Open(s.ctx, s.dsn, "")
	require.NoError(s.t, err)
	defer store.Pool.Close()
	st, err := store.Status(s.ctx)
	require.NoError(s.t, err)
	return st
}

// What was emitted and not yet read is the lag of mode wal, whether a relay runs or not; what was rolled back is none.
func TestLagOfTheWAL(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	_, stop := s.begin(outbox.WAL, named)
	s.add("o-1", 0)
	s.eventually(1)
	require.NoError(t, stop())
	require.Zero(t, s.status().Lag)
	for n := range 500 {
		s.add(fmt.Sprint("o-", n%7), n)
	}
	st := s.status()
	require.EqualValues(t, 500, st.Lag)
	require.EqualValues(t, 500, st.Rows[outbox.StateNew])
	require.Positive(t, st.Oldest)
	require.Greater(t, st.Unread, int64(500*100))
	require.GreaterOrEqual(t, st.SlotBytes, st.Unread)

	r, stop := s.begin(outbox.WAL, named)
	s.eventually(501)
	for range 5 {
		tx, err := s.pool.Begin(s.ctx)
		require.NoError(t, err)
		_, err = tx.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{}')`)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(s.ctx))
	}
	require.Eventually(t, func() bool {
		rows, oldest, ok := r.Unread()
		return ok && rows == 0 && oldest == 0
	}, waitFor, tick)
	require.Eventually(t, func() bool { st := s.status(); return st.Lag == 0 && st.Oldest == 0 }, waitFor, 50*tick)
	require.NoError(t, stop())
	require.Zero(t, s.status().Lag)
}

// A transaction takes its numbers when it appends and is read when it commits, behind others that were numbered after it: what it
// has appended waits like all else, as far as status, limit and the relay know.
func TestLagOfATransactionThatWasOpenForLong(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	r, stop := s.begin(outbox.WAL, named)
	tx, err := s.pool.Begin(s.ctx)
	require.NoError(t, err)
	for n := range 50 {
		_, err = tx.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', $1)`, fmt.Sprintf(`{"n": %d}`, n))
		require.NoError(t, err)
	}
	for n := range 10 {
		s.add("o-2", n)
	}
	s.eventually(10)
	r.Pause()
	require.NoError(t, tx.Commit(s.ctx))
	require.Eventually(t, func() bool {
		rows, oldest, ok := r.Unread()
		return ok && rows == 50 && oldest > 0
	}, waitFor, tick)
	require.NoError(t, stop())
	require.EqualValues(t, 50, s.status().Lag)

	r, stop = s.begin(outbox.WAL, named)
	s.eventually(60)
	require.Eventually(t, func() bool { rows, oldest, ok := r.Unread(); return ok && rows == 0 && oldest == 0 }, waitFor, tick)
	require.NoError(t, stop())
	require.Zero(t, s.status().Lag)
}

// The limit of the lag refuses in mode wal, too, and lets go again.
func TestTheLimitOfTheLagHoldsInEachMode(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode, named func(*Relay)) {
		require.NoError(t, outbox.Init(t.Context(), s.dsn, "", outbox.Settings{MaxLag: 50}))
		r, _ := s.begin(mode, named)
		s.add("o-1", 0)
		s.eventually(1)
		r.Pause()
		refused := func() bool {
			return pgx.BeginFunc(s.ctx, s.pool, func(tx pgx.Tx) error {
				_, err := (&outbox.Appender{}).Append(s.ctx, tx, outbox.Message{AggregateType: "order", AggregateID: "o-1", EventType: "order.paid"})
				return err
			}) != nil
		}
		for n := 0; n < 60 && !refused(); n++ { // on a slow machine it is refused before the last
		}
		require.Eventually(t, refused, waitFor, 20*tick)
		r.Resume()
		require.Eventually(t, func() bool { return !refused() }, waitFor, 20*tick)
	})
}

// A slot with events that nobody has read is not dropped by the way, and after a drop nothing is emitted for nobody: by no
// transaction that is under way, and by none that still sees the slot.
func TestDropSlot(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	r, stop := s.begin(outbox.WAL, named)
	slot := r.Config.Slot
	s.add("o-1", 1)
	s.eventually(1)
	drop := func(force bool) error { return outbox.DropSlot(s.ctx, s.dsn, "", slot, force) }
	err := drop(false)
	require.Error(t, err, "it is read")
	require.NotErrorIs(t, err, outbox.ErrRowsWait, "may be over soon")
	require.NoError(t, stop())
	s.add("o-1", 2)
	require.ErrorIs(t, drop(false), outbox.ErrRowsWait)
	s.add("o-1", 3) // nothing has changed
	stop = s.run(s.relay(outbox.WAL, named))
	s.eventually(3)
	require.NoError(t, stop())

	old, err := s.pool.BeginTx(s.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = old.Rollback(s.ctx) }()
	_, err = old.Exec(s.ctx, `select count(*) from pg_class`)
	require.NoError(t, err)
	under, err := s.pool.Begin(s.ctx)
	require.NoError(t, err)
	_, err = under.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{"n": 4}')`)
	require.NoError(t, err)
	dropped := make(chan error, 1)
	go func() { dropped <- drop(false) }()
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from pg_locks where not granted and relation = 'outbox_settings'::regclass`) == 1
	}, waitFor, tick)
	require.NoError(t, under.Commit(s.ctx))
	require.ErrorIs(t, <-dropped, outbox.ErrRowsWait)

	require.NoError(t, drop(true))
	require.Zero(t, s.count(`select count(*) from pg_replication_slots where slot_name = $1`, slot))
	_, err = old.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{"n": 5}')`)
	require.ErrorContains(t, err, "40001")
	_, err = s.pool.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{"n": 5}')`)
	require.ErrorContains(t, err, "OB002")
	require.NoError(t, drop(false), "there is none")
	again := s.relay(outbox.WAL, named) // begins anew
	s.run(again)
	s.reads(again)
	require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_settings where wal_slot is not null`) == 1 }, waitFor, tick)
	s.add("o-1", 6)
	s.eventually(4)
	require.Equal(t, "1 2 3 6", s.numbered("o-1"))
}
