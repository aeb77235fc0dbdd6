package relay

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// picky is a relay of the source that parks all but order.paid, for an hour.
func picky(r *Relay) {
	r.Config.Types = &outbox.Types{Names: []string{"order.paid"}, Unknown: outbox.ParkUnknown}
	r.Config.BaseBackoff, r.Config.MaxBackoff = time.Hour, time.Hour
}

// aside kills a relay that has parked the rows of a query, before it has said that it is past them.
func (s *shop) aside(query string) {
	s.t.Helper()
	end := s.killed(outbox.Log, "parked", 0, picky)
	s.exec(query)
	_ = end()
}

func (s *shop) discard() {
	s.t.Helper()
	n, err := (&outbox.Store{Pool: s.pool}).Discard(s.ctx, outbox.Filter{All: true}, "somebody")
	require.NoError(s.t, err)
	require.EqualValues(s.t, 1, n)
}

// A row that a killed relay had parked is read again by the next one. It is not published when it is discarded before that,
// whenever that is.
func TestADiscardBeforeARowIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"opened", "read"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Log)
			s.aside(`select outbox_append('order', 'o-1', 'order.new', '{"n": 1}')`)
			r := s.relay(outbox.Log)
			r.Pause()
			var once sync.Once
			r.control.Hook = func(at string) {
				if when == "read" && at == "read" {
					once.Do(s.discard)
				}
			}
			s.exec(`update outbox_parked set next_retry_at = now() + interval '1 hour'`)
			s.run(r)
			s.opened(r)
			if when == "opened" {
				s.discard()
			}
			r.Resume()
			s.add("o-1", 2)
			s.eventually(1)
			s.add("o-1", 3)
			s.eventually(2)
			require.Equal(t, "2 3", s.numbered("o-1"))
			require.Zero(t, s.count(`select count(*) from outbox_parked`))
		})
	}
}

// A row whose time comes when a relay that is to read it again has looked what is due, and has not read it yet, is published once.
func TestARowThatFallsDueBeforeItIsReadAgain(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	forgotten := s.forgetful()
	s.aside(`select outbox_append('order', 'o-1', 'order.paid', '{"n": 1}', not_before => now() + interval '1 hour')`)
	s.exec(`update outbox_log set not_before = now()`) // and not yet when it was looked
	stop := s.run(s.relay(outbox.Log))
	s.add("o-2", 1)
	require.Eventually(t, func() bool { return s.numbered("o-2") == "1" }, waitFor, tick)
	forgotten()
	require.NoError(t, stop())
	s.due("o-1")
	s.run(s.relay(outbox.Log))
	s.empty("o-1")
	require.Equal(t, "1", s.numbered("o-1"))
}

// What is discarded while it is published is in the stream, and is shown so, also where the relay ends before it has heard of either.
func TestARowThatIsDiscardedWhileItIsPublished(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	stop := s.run(s.relay(outbox.Log))
	s.exec(`select outbox_append('order', 'o-' || n, 'order.paid', '{"n": 1}', not_before => now() + interval '1 hour') from generate_series(1, 2) as n`)
	s.parks(2)
	require.NoError(t, stop())
	discard := func(id string) func() {
		s.due(id)
		return func() {
			s.exec(`update outbox_parked set state = 'FAILED' where aggregate_id = $1`, id) // as after a refusal
			s.discard()
		}
	}
	sent := func(n int) {
		require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_event_status where status = 'SENT'`) == n }, waitFor, tick)
		require.Equal(t, n, s.stored())
	}
	r, first := s.relay(outbox.Log), discard("o-1")
	var once sync.Once
	r.control.Hook = func(at string) {
		if at == "published parked" {
			once.Do(first)
		}
	}
	stop = s.run(r)
	sent(1)
	require.NoError(t, stop())
	s.ends("published parked", 0, discard("o-2"), func() {})
	s.run(s.relay(outbox.Log))
	sent(2)
}

// published runs a relay that publishes what is parked and due, and is ended before it can take that out of the database. It returns when
// the stream has forgotten the ids.
func (s *shop) published(n int, change ...func(*Relay)) {
	s.t.Helper()
	forgotten := s.forgetful()
	s.ends("published parked", n, func() {}, func() {}, change...)
	forgotten()
}

// What a relay has published and left parked is not published again, though what is parked before it falls due first, is refused, and
// holds it back.
func TestWhatWasPublishedBehindALaterRow(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	taking := func(names ...string) func(*Relay) {
		return func(r *Relay) {
			picky(r)
			r.Config.Types.Names = names
		}
	}
	stop := s.run(s.relay(outbox.Log, picky))
	s.exec(`select outbox_append('order', 'o-1', 'order.strange', '{"n": 1}', not_before => now() + interval '1 hour')`)
	s.exec(`select outbox_append('order', 'o-1', 'order.new', '{"n": 2}')`)
	s.parks(2)
	require.NoError(t, stop())
	s.exec(`update outbox_parked set next_retry_at = now() where event_type = 'order.new'`)
	s.published(1, taking("order.new"))
	s.due("o-1")
	stop = s.run(s.relay(outbox.Log, taking("order.new")))
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from outbox_parked where event_type = 'order.strange' and state = 'FAILED'`) == 1
	}, waitFor, tick)
	require.NoError(t, stop())
	s.exec(`update outbox_parked set next_retry_at = now()`)
	s.run(s.relay(outbox.Log))
	s.empty("o-1")
	require.Equal(t, "2 1", s.numbered("o-1"))
}

// Nor when the next relay is told to end while it opens a shard, whichever it begins with.
func TestARelayThatEndsWhileItOpens(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	const all = 20 // some in each shard
	_, stop := s.begin(outbox.Log)
	s.exec(`select outbox_append('order', 'o-' || n, 'order.paid', '{"n": 1}', not_before => now() + interval '1 hour') from generate_series(1, $1::int) as n`, all)
	s.parks(all)
	require.NoError(t, stop())
	s.exec(`update outbox_parked set not_before = now(), next_retry_at = now()`)
	s.published(all)
	tx, err := s.pool.Begin(s.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(s.ctx, `lock table outbox_parked`)
	require.NoError(t, err)
	stop = s.run(s.relay(outbox.Log))
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from pg_locks where relation = 'outbox_parked'::regclass and not granted`) > 0
	}, waitFor, tick)
	require.NoError(t, stop())
	require.NoError(t, tx.Commit(s.ctx))
	s.run(s.relay(outbox.Log))
	s.parks(0)
	require.Equal(t, all, s.stored())
}

// What was published and left parked is in the stream, and is shown so, though it is discarded before the next relay tries anything.
func TestADiscardOfWhatWasPublished(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"ended", "opened"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Log)
			stop := s.run(s.relay(outbox.Log))
			s.exec(`select outbox_append('order', 'o-1', 'order.paid', '{"n": 1}', not_before => now() + interval '1 hour')`)
			s.parks(1)
			require.NoError(t, stop())
			s.due("o-1")
			s.published(1)
			s.exec(`update outbox_parked set state = 'FAILED'`) // as after a refusal
			discard := func() {
				_, err := (&outbox.Store{Pool: s.pool}).Discard(s.ctx, outbox.Filter{All: true}, "somebody")
				require.NoError(t, err)
			}
			if when == "ended" {
				discard()
			}
			r := s.relay(outbox.Log)
			r.Pause()
			s.run(r)
			s.opened(r)
			discard()
			r.Resume()
			s.settled()
			require.Equal(t, 1, s.stored())
		})
	}
}
