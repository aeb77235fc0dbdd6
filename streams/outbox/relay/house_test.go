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
