package relay

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// loses lets a relay read an event and end, and drops its slot.
func (s *shop) loses(named func(*Relay)) {
	s.t.Helper()
	r, stop := s.begin(outbox.WAL, named)
	s.add("o-1", 1)
	s.eventually(1)
	require.NoError(s.t, stop())
	require.Eventually(s.t, func() bool {
		_, err := s.pool.Exec(s.ctx, `select pg_drop_replication_slot($1)`, r.Config.Slot)
		return err == nil
	}, waitFor, tick)
}

// Appending is refused once the slot is gone, also while a transaction is open that has appended before. Those that see what
// was before are refused as soon as none is, also by the next relay, where one ends before that.
func TestALostSlotRefusesWhileATransactionIsOpen(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	s.loses(named)
	begin := func(options pgx.TxOptions, first string) pgx.Tx {
		tx, err := s.pool.BeginTx(s.ctx, options)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(s.ctx) })
		_, err = tx.Exec(s.ctx, first)
		require.NoError(t, err)
		return tx
	}
	const one = `select outbox_append('order', 'o-1', 'order.paid', '{"n": 2}')`
	old := begin(pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, `select count(*) from pg_class`)
	open := begin(pgx.TxOptions{}, one)
	stop := s.run(s.relay(outbox.WAL, named))
	require.Eventually(t, func() bool {
		_, err := s.pool.Exec(s.ctx, one)
		return err != nil
	}, waitFor, tick)
	_, err := s.pool.Exec(s.ctx, one)
	require.ErrorContains(t, err, "OB002")
	require.NoError(t, stop())
	next := s.relay(outbox.WAL, named)
	ended := make(chan error, 1)
	go func() { ended <- next.Run(s.ctx) }()
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) > 0
	}, waitFor, tick)
	require.NoError(t, open.Rollback(s.ctx))
	require.ErrorIs(t, <-ended, errLostSlot)
	_, err = old.Exec(s.ctx, one)
	require.ErrorContains(t, err, "40001")
}

// few makes a role that may do what a relay must, with those rights of roles, and lets a relay have it.
func (s *shop) few(rights string) (role string, with func(*Relay)) {
	s.t.Helper()
	config, err := pgx.ParseConfig(s.dsn)
	require.NoError(s.t, err)
	role = "few_" + config.Database
	s.exec(fmt.Sprintf(`create role %q %s login password 'secret' in role pg_monitor`, role, rights))
	s.exec(fmt.Sprintf(`grant select, insert, update, delete on all tables in schema public to %q`, role))
	s.exec(fmt.Sprintf(`grant all on all sequences in schema public to %q`, role))
	s.exec(fmt.Sprintf(`grant create on database %q to %q`, config.Database, role))
	return role, func(r *Relay) {
		r.Config.DSN = fmt.Sprintf("postgres://%s:secret@%s:%d/%s?sslmode=disable", role, config.Host, config.Port, config.Database)
	}
}

// A relay that may not truncate the settings refuses as well, and says why it stands still.
func TestALostSlotRefusesWithoutTheRightToTruncate(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	s.loses(named)
	_, few := s.few("replication")
	require.ErrorIs(t, s.relay(outbox.WAL, named, few).Run(s.ctx), errLostSlot)
	_, err := s.pool.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{"n": 2}')`)
	require.ErrorContains(t, err, "OB002")
}

// What nobody has read of a slot that is gone stays the lag.
func TestALostSlotLeavesALag(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	s.loses(named)
	s.add("o-1", 2)
	s.add("o-1", 3)
	require.EqualValues(t, 2, s.status().Lag)
	require.ErrorIs(t, s.relay(outbox.WAL, named).Run(s.ctx), errLostSlot)
	require.EqualValues(t, 2, s.status().Lag)
	require.Positive(t, s.status().Oldest)
}
