package relay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// What was parked and published behind the position is all that a stream has lost which kept its last marker: a disk that was
// cut off forgets what it had not synced. Nothing tells of it but the rows.
func TestAStreamThatLostItsTail(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	_, stop := s.begin(outbox.Log)
	for _, id := range []string{"o-1", "o-2"} {
		s.exec(`select outbox_append('order', $1, 'order.paid', '{"n": 1}', not_before => now() + interval '1 hour')`, id)
		s.exec(`select outbox_append('order', $1, 'order.paid', '{"n": 2}', not_before => now() + interval '1 hour')`, id)
	}
	s.add("o-1", 3)
	s.eventually(1)
	require.NoError(t, stop())
	s.due("o-2")
	r, stop := s.begin(outbox.Log)
	s.eventually(3)
	s.empty("o-2")
	r.NC.Close()
	_ = stop()
	s.due("o-1")
	r = s.relay(outbox.Log)
	r.Pause()
	stop = s.run(r)
	s.opened(r)
	old := s.backup() // of a session that goes on without another marker
	r.Resume()
	s.eventually(5)
	s.empty("o-1")
	r.NC.Close()
	_ = stop()
	s.restore(old)
	require.Equal(t, 3, s.stored())

	// A relay that is stopped before it has published any of it forgets nothing.
	between := s.relay(outbox.Log)
	between.Pause()
	stop = s.run(between)
	s.opened(between)
	require.NoError(t, stop())
	_, stop = s.begin(outbox.Log)
	s.eventually(5)
	s.empty("o-1")
	s.add("o-3", 1)
	s.eventually(6)
	require.NoError(t, stop())
	s.begin(outbox.Log)
	s.add("o-3", 2)
	s.eventually(7)
	require.Equal(t, "3 1 2", s.numbered("o-1"))
	require.Equal(t, "1 2", s.numbered("o-2"))
	require.Equal(t, "1 2", s.numbered("o-3"))
}

// opened waits until a relay has opened all that it is to open.
func (s *shop) opened(r *Relay) {
	s.t.Helper()
	shards := 1
	if r.Config.Mode == outbox.Log {
		shards = 4
	}
	require.Eventually(s.t, func() bool { return len(r.Status().Shards) == shards }, waitFor, tick)
}

// empty waits until nothing of an aggregate is parked.
func (s *shop) empty(id string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.count(`select count(*) from outbox_parked where aggregate_id = $1`, id) == 0 }, waitFor, tick)
}

// What is published again is in order, also what was parked and is behind the position that the stream was set back to.
func TestARestoredStreamGetsParkedRowsInOrder(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	large := func(id string) {
		s.exec(`select outbox_append('order', $1, 'order.paid', jsonb_build_object('n', repeat('2', 5000)))`, id)
	}
	stop := s.run(s.relay(outbox.Log))
	s.add("o-0", 0)
	s.eventually(1)
	require.NoError(t, stop())
	s.takes(4096)
	old := s.backup()
	old.config.MaxMsgSize = -1
	stop = s.run(s.relay(outbox.Log))
	s.add("o-1", 1)
	large("o-1")
	s.add("o-1", 3)
	large("o-2")
	s.add("o-2", 3)
	s.eventually(2)
	s.parks(4)
	require.NoError(t, stop())
	s.takes(-1)
	stop = s.run(s.relay(outbox.Log))
	s.eventually(6)
	s.empty("o-1")
	s.empty("o-2")
	require.NoError(t, stop())

	s.restore(old)
	s.run(s.relay(outbox.Log))
	s.eventually(6)
	s.add("o-0", 1)
	s.eventually(7)
	for id, want := range map[string]string{"o-1": "1 2 3", "o-2": "2 3"} {
		require.Equal(t, want, strings.ReplaceAll(s.numbered(id), strings.Repeat("2", 5000), "2"))
	}
	require.Equal(t, 7, s.stored())
}

// What was discarded is not published, though its relay was killed before it said that it had passed it.
func TestWhatWasDiscardedIsNotReadAgain(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	r := s.relay(outbox.Log, func(r *Relay) {
		r.Config.Types = &outbox.Types{Names: []string{"order.paid"}, Unknown: outbox.ParkUnknown}
	})
	stop := s.run(r)
	s.exec(`select outbox_append('order', 'o-1', 'order.new', '{"n": 1}'), outbox_append('order', 'o-1', 'order.new', '{"n": 2}')`)
	s.parks(2)
	store, err := outbox.Open(s.ctx, s.dsn, "")
	require.NoError(t, err)
	defer store.Pool.Close()
	n, err := store.Discard(s.ctx, outbox.Filter{All: true}, "somebody")
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "the other one did not fail")
	r.NC.Close()
	_ = stop()
	for n := range 2 {
		_, stop = s.begin(outbox.Log)
		s.add("o-1", 3+n)
		s.eventually(2 + n)
		require.NoError(t, stop())
	}
	require.Equal(t, "2 3 4", s.numbered("o-1"))
}

// Nor when all that is there is published again into a stream that was made anew.
func TestWhatWasDiscardedIsNotPublishedWithAllAgain(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	stop := s.run(s.relay(outbox.Log, func(r *Relay) {
		r.Config.Types = &outbox.Types{Names: []string{"order.paid"}, Unknown: outbox.ParkUnknown}
	}))
	s.exec(`select outbox_append('order', 'o-1', 'order.new', '{"n": 1}')`)
	s.parks(1)
	store, err := outbox.Open(s.ctx, s.dsn, "")
	require.NoError(t, err)
	defer store.Pool.Close()
	_, err = store.Discard(s.ctx, outbox.Filter{All: true}, "somebody")
	require.NoError(t, err)
	s.add("o-1", 2)
	s.eventually(1)
	require.NoError(t, stop())
	stream, err := s.js.Stream(s.ctx, "OUTBOX")
	require.NoError(t, err)
	require.NoError(t, s.js.DeleteStream(s.ctx, "OUTBOX"))
	_, err = s.js.CreateStream(s.ctx, stream.CachedInfo().Config)
	require.NoError(t, err)
	s.exec(`update outbox_stream set marker = 0`)
	s.exec(`delete from outbox_cursor`)
	s.run(s.relay(outbox.Log))
	s.add("o-1", 3)
	s.eventually(2)
	require.Equal(t, "2 3", s.numbered("o-1"))
}
