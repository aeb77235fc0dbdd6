package relay

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// crossed is a shop whose stream was set back behind a change from 4 to 2 shards. It has lost three events of an aggregate: they are in
// a former shard, 3, and what is appended from now on is in shard 1. The stream refuses the first one of them.
func crossed(t *testing.T) (s *shop, id string) {
	t.Helper()
	s = openShop(t, outbox.Log)
	for n := 0; id == "" || outbox.ShardOf("order", id, 4) != 3 || outbox.ShardOf("order", id, 2) != 1; n++ {
		id = fmt.Sprint("o-", n)
	}
	stop := s.run(s.relay(outbox.Log))
	s.add("before", 0)
	s.eventually(1)
	require.NoError(t, stop())
	old := s.backup()
	stop = s.run(s.relay(outbox.Log))
	s.large(id, 1)
	s.add(id, 2)
	s.add("beside", 3)
	s.eventually(4)
	require.NoError(t, stop())
	require.NoError(t, outbox.Init(s.ctx, s.dsn, "", outbox.Settings{Shards: 2}))
	old.config.MaxMsgSize = 4096
	s.restore(old)
	return s, id
}

func tireless(r *Relay) { r.Config.Attempts = 10000 }

// large appends an event of about 5 kB.
func (s *shop) large(id string, n int) {
	s.t.Helper()
	s.exec(`select outbox_append('order', $1, 'order.paid', jsonb_build_object('n', $2::int, 'nn', repeat(' ', 5000)))`, id, n)
}

// takes lets the stream have events of up to so many bytes; -1 is any.
func (s *shop) takes(size int32) {
	s.t.Helper()
	info, err := s.outbox.Info(s.ctx)
	require.NoError(s.t, err)
	info.Config.MaxMsgSize = size
	_, err = s.js.UpdateStream(s.ctx, info.Config)
	require.NoError(s.t, err)
}

func (s *shop) parks(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.count(`select count(*) from outbox_parked`) == n }, waitFor, tick)
}

// What is parked in a former shard holds up what is appended for its aggregate since. A relay that ends before it has heard what became
// of both leaves the next one nothing to read back for ever.
func TestAParkedRowOfAFormerShardIsNotOvertaken(t *testing.T) {
	t.Parallel()
	s, id := crossed(t)
	stop := s.run(s.relay(outbox.Log, tireless))
	s.parks(2)
	s.exec(`select outbox_append('order', $1, 'order.new', '{"n": 4}')`, id)
	s.add("beside", 5)
	require.Eventually(t, func() bool { return s.numbered("beside") == "3 5" }, waitFor, tick)
	require.Empty(t, s.numbered(id))
	require.NoError(t, stop())
	s.takes(-1)
	s.ends("published parked", 5, func() {}, func() {}, picky)
	stop = s.run(s.relay(outbox.Log, picky))
	s.parks(1)
	require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_parked where state = 'FAILED'`) == 1 }, waitFor, tick)
	require.Equal(t, "1 2", s.numbered(id))
	require.NoError(t, stop())
	last, err := s.outbox.GetLastMsgForSubject(s.ctx, "outbox-pos.shop.log.3")
	require.NoError(t, err)
	require.Contains(t, string(last.Data), `"clean":true`)
	s.exec(`update outbox_parked set next_retry_at = now()`)
	s.run(s.relay(outbox.Log))
	s.parks(0)
	require.Equal(t, "1 2 4", s.numbered(id))
}

// What was published of a former shard, and of the one behind it, and left parked is not published again, though a session comes between
// that passes nothing.
func TestWhatWasPublishedBehindAFormerShard(t *testing.T) {
	t.Parallel()
	s, id := crossed(t)
	stop := s.run(s.relay(outbox.Log, tireless))
	s.parks(2)
	s.add(id, 4)
	s.parks(3)
	require.NoError(t, stop())
	s.takes(-1)
	s.published(5, tireless)
	r := s.relay(outbox.Log, tireless)
	r.Pause()
	stop = s.run(r)
	s.opened(r)
	require.NoError(t, stop())
	s.run(s.relay(outbox.Log, tireless))
	s.parks(0)
	require.Equal(t, "1 2 4", s.numbered(id))
}

// Two nodes have one of its shards each: the later rows wait for the earlier ones, whichever were parked first, and a relay that has
// only the later ones is drained all the same.
func TestAnAggregateIsParkedInShardsOfTwoNodes(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"earlier", "later"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			s, id := crossed(t)
			a, b := s.relay(outbox.Log, tireless, granting("a", 0, 1, 2)), s.relay(outbox.Log, tireless, granting("b", 3))
			if first == "earlier" {
				s.run(b)
				s.parks(2)
			}
			stop := s.run(a)
			s.large(id, 4)
			if first == "later" {
				s.parks(1)
				s.run(b)
			}
			s.parks(3)
			s.eventually(2) // what the stream has lost of the other aggregate: its later rows do not wait for that
			s.add("beside", 5)
			require.Eventually(t, func() bool { return s.numbered("beside") == "3 5" }, waitFor, tick)
			s.add(id, 6)
			s.parks(4)
			ctx, cancel := context.WithTimeout(s.ctx, waitFor)
			defer cancel()
			require.NoError(t, a.Drain(ctx))
			require.ErrorIs(t, stop(), ErrDrained)
			s.takes(-1)
			s.run(s.relay(outbox.Log, tireless, granting("a", 0, 1, 2)))
			require.Eventually(t, func() bool { return strings.Count(s.numbered(id), " ") == 3 }, waitFor, tick)
			require.Equal(t, "1 2 4 6", s.numbered(id))
			s.parks(0)
		})
	}
}

// Rows of mode claim that are NEW again behind a change to fewer shards are published like others, and counted, whether a relay runs, is
// drained, or not.
func TestRowsOfFormerShardsAreClaimed(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Claim)
	stop := s.run(s.relay(outbox.Claim))
	for n := range 12 {
		s.add(fmt.Sprint("o-", n), n)
	}
	s.eventually(12)
	s.allSent()
	require.NoError(t, stop())
	require.NoError(t, outbox.Init(s.ctx, s.dsn, "", outbox.Settings{Shards: 2}))
	const anew = `update outbox_event set status = 'NEW', next_retry_at = now() where shard > 1`
	s.exec(anew)
	st, err := (&outbox.Store{Pool: s.pool}).Status(s.ctx)
	require.NoError(t, err)
	require.Positive(t, st.Lag)
	stop = s.run(s.relay(outbox.Claim))
	for n := range 12 {
		s.add(fmt.Sprint("o-", n), 100+n)
	}
	s.allSent()
	s.exec(anew)
	s.allSent()
	require.NoError(t, stop())
	r := s.relay(outbox.Claim)
	stop = s.run(r)
	s.opened(r)
	s.exec(anew)
	require.NoError(t, r.Drain(s.ctx))
	require.ErrorIs(t, stop(), ErrDrained)
	require.Zero(t, s.count(`select count(*) from outbox_event where status <> 'SENT'`))
	require.Zero(t, r.restarts.Load(), "faults")
}
