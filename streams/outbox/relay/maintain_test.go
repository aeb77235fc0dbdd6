package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// A running relay forgets what was handled so long ago that the stream has it no more.
func TestARelayPurgesTheInbox(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	s.exec(`insert into outbox_inbox (event_id, handler, handled_at) select n::text, 'mail', now() - n * interval '1 day' from generate_series(1, 20) as n`)
	stop := s.run(s.relay(outbox.Log))
	require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_inbox`) == 13 }, waitFor, tick)
	require.NoError(t, stop())
	s.exec(`update outbox_settings set inbox_retention = '1 hour'`)
	s.run(s.relay(outbox.Log))
	require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_inbox`) == 6 }, waitFor, tick, "the stream keeps 7 days")
}

// Each node says how far it is with its shards; who says nothing any more counts no more.
func TestTheNodeThatIsFurthestBehindCounts(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	store, err := outbox.Open(s.ctx, s.dsn, "")
	require.NoError(t, err)
	defer store.Pool.Close()
	require.NoError(t, store.Publish(s.ctx, "shop", "a", 1000))
	require.NoError(t, store.Publish(s.ctx, "shop", "b", 0))
	appended := func() error {
		_, err := s.pool.Exec(s.ctx, `select outbox_append_bytes('order', 'o-1', 'order.paid', '{}', 'application/json', limit_lag => 10)`)
		return err
	}
	require.ErrorContains(t, appended(), "1000 events behind")
	s.exec(`update outbox_pressure set at = at - interval '2 minutes' where lag = 1000`)
	require.NoError(t, store.Publish(s.ctx, "shop", "b", 0))
	require.NoError(t, appended())
}

// caughtUp waits until what the relays have said since is that nothing waits.
func (s *shop) caughtUp(relays int) {
	s.t.Helper()
	since := s.count(`select extract(epoch from clock_timestamp())::int + 1`)
	require.Eventually(s.t, func() bool {
		return s.count(`select count(*) from outbox_pressure where lag = 0 and at > to_timestamp($1)`, since) == relays
	}, waitFor, tick)
}

// Numbers that nobody has are no lag: appending would be refused until somebody appends.
func TestRolledBackNumbersAreNoLag(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	stop := s.run(s.relay(outbox.Log))
	s.add("o-1", 1)
	s.eventually(1)
	for range 2 {
		s.exec(`begin; select outbox_append('order', 'o-1', 'order.paid', jsonb_build_object('n', i)) from generate_series(1, 200) i; rollback`)
		s.caughtUp(1)
		require.NoError(t, stop()) // the next one goes on behind them
		stop = s.run(s.relay(outbox.Log))
	}
	s.exec(`select outbox_append_bytes('order', 'o-1', 'order.paid', '{"n": 2}', 'application/json', limit_lag => 100)`)
	s.eventually(2)
	require.Equal(t, "1 2", s.numbered("o-1"))
}

// What other relays have published is no lag of one whose shards are idle.
func TestRowsOfOtherShardsAreNoLag(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	a, b := s.relay(outbox.Log, leased("a")), s.relay(outbox.Log, leased("b"))
	s.run(a)
	s.run(b)
	s.holds(a, 2)
	s.holds(b, 2)
	for n := range 20 {
		s.add("o-1", n)
	}
	s.eventually(20)
	s.caughtUp(2)
}
