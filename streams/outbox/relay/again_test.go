package relay

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// forgetful lets the stream know ids for a moment only: what keeps an event from being stored twice is not its id.
func (s *shop) forgetful() (forgotten func()) {
	s.t.Helper()
	c := s.stream.Config()
	c.Duplicates = 100 * time.Millisecond
	_, err := s.js.UpdateStream(s.ctx, c)
	require.NoError(s.t, err)
	return func() {
		s.t.Helper()
		require.Eventually(s.t, func() bool {
			stream, err := s.js.Stream(s.ctx, "OUTBOX")
			return err == nil && time.Since(stream.CachedInfo().State.LastTime) > 4*c.Duplicates
		}, waitFor, tick)
	}
}

// A session that ends in order before it has passed what an earlier one stored must not say that there is nothing to read
// back: the next one would store it again.
func TestASessionThatPassesNothingForgetsNothing(t *testing.T) {
	t.Parallel()
	for _, held := range []string{"paused", "writer"} { // what keeps the session in between from passing anything
		t.Run(held, func(t *testing.T) {
			t.Parallel()
			inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
				forgotten := s.forgetful()
				stop := s.killed(mode, "published", 20)
				for n := range 20 {
					s.add("o-1", n)
				}
				s.eventually(20)
				_ = stop()
				tx, err := s.pool.Begin(s.ctx)
				require.NoError(t, err)
				var waits waiting
				between := s.relay(mode, func(r *Relay) { r.Meter = &waits })
				if held == "writer" {
					_, err = tx.Exec(s.ctx, `select outbox_append('order', 'o-2', 'order.paid', '{}')`)
					require.NoError(t, err)
				} else {
					between.Pause()
				}
				stop = s.run(between)
				require.Eventually(t, func() bool {
					return len(between.Status().Shards) > 0 && (held == "paused" || mode != outbox.Log || waits.n.Load() > 3)
				}, waitFor, tick)
				require.NoError(t, stop())
				require.NoError(t, tx.Commit(s.ctx))
				forgotten()
				s.begin(mode)
				s.add("o-3", 1)
				s.passed(20, held == "writer")
			})
		})
	}
}

// killed runs a relay that loses NATS for good at a point, once so many events are stored.
func (s *shop) killed(mode outbox.Mode, at string, stored int, change ...func(*Relay)) (stop func() error) {
	s.t.Helper()
	dead := make(chan struct{})
	r := s.relay(mode, change...)
	r.control.Hook = func(here string) {
		if here == at && s.stored() >= stored && r.NC.IsConnected() {
			r.NC.Close()
			close(dead)
		}
	}
	end := s.run(r)
	return func() error {
		select {
		case <-dead:
		case <-time.After(waitFor):
			require.Fail(s.t, "not killed", at)
		}
		return end()
	}
}

// passed waits for the event of o-3, which comes behind what was there before, and looks whether any is there twice.
func (s *shop) passed(before int, writer bool) {
	s.t.Helper()
	want := before + 1
	if writer {
		want++
	}
	require.Eventually(s.t, func() bool { return s.numbered("o-3") == "1" }, waitFor, tick)
	s.eventually(want)
	require.Equal(s.t, words(0, before-1), s.numbered("o-1"))
	require.Equal(s.t, want, s.stored())
}

// ends runs a relay that is told to end at a point, which then goes on after what meanwhile did. It waits until Run has returned.
func (s *shop) ends(at string, stored int, meanwhile, work func(), change ...func(*Relay)) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	defer cancel()
	var once sync.Once
	r := s.relay(outbox.Log, change...)
	r.control.Hook = func(here string) {
		if here == at && s.stored() >= stored {
			once.Do(func() { meanwhile(); cancel() })
		}
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	require.Eventually(s.t, func() bool { // it may end at once, by what is due already
		return len(r.Status().Shards) > 0 || len(done) > 0
	}, waitFor, tick)
	work()
	select {
	case err := <-done:
		require.NoError(s.t, err)
	case <-time.After(waitFor):
		require.Fail(s.t, "did not end", at)
	}
}

// A parked row that was stored and could not be taken out of the database is not stored again, though markers were written
// since and sessions ended in order.
func TestAParkedRowIsStoredOnceOverManySessions(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	forgotten := s.forgetful()
	patient := func(r *Relay) { r.Config.BaseBackoff, r.Config.MaxBackoff = time.Hour, time.Hour }
	tx, err := s.pool.Begin(s.ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // else the end of a failed test waits for it
	s.ends("published parked", 1, func() {
		_, err := tx.Exec(s.ctx, `select from outbox_parked for update`) // it cannot be taken out
		require.NoError(t, err)
	}, func() {
		s.exec(`select outbox_append('order', 'o-1', 'order.paid', '{"n": 1}', not_before => now() + interval '2 seconds')`) // it is read before that, however slow the machine is
	}, patient)
	require.NoError(t, tx.Commit(s.ctx))
	require.Equal(t, 1, s.count(`select count(*) from outbox_parked`))
	for n := range 3 {
		forgotten()
		_, stop := s.begin(outbox.Log, patient)
		s.add("o-2", n)
		s.eventually(2 + n)
		s.exec(`update outbox_parked set next_retry_at = now()`)
		require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_parked`) == 0 }, waitFor, tick)
		require.NoError(t, stop())
	}
	require.Equal(t, "1", s.numbered("o-1"))
}

// A relay that is told to end while a lot is under way, and cannot end it, leaves nothing that says that it had.
func TestALotThatDoesNotEndIsReadBack(t *testing.T) {
	t.Parallel()
	const large = `select outbox_append('order', 'o-1', 'order.paid', jsonb_build_object('n', repeat('2', 5000)))`
	fill := func(s *shop) {
		s.exec(`begin; select outbox_append('order', 'o-1', 'order.paid', '{"n": 1}'); ` + large + `; select outbox_append('order', 'o-2', 'order.paid', '{"n": 3}'); commit`)
	}
	complete := func(s *shop, forgotten func()) {
		forgotten()
		s.takes(-1)
		s.begin(outbox.Log)
		s.exec(`update outbox_parked set next_retry_at = now()`)
		s.eventually(3)
		s.add("o-2", 4)
		s.eventually(4)
		require.Equal(s.t, "1 "+strings.Repeat("2", 5000), s.numbered("o-1"))
		require.Equal(s.t, "3 4", s.numbered("o-2"))
	}
	t.Run("twice", func(t *testing.T) { // what goes before a row that is too large is stored, and the row cannot be parked
		t.Parallel()
		s := openShop(t, outbox.Log)
		forgotten := s.forgetful()
		s.takes(4096)
		s.ends("published", 1, func() {}, func() { fill(s) })
		require.Zero(t, s.count(`select count(*) from outbox_parked`))
		complete(s, forgotten)
	})
	t.Run("lost", func(t *testing.T) { // what goes behind a row that the stream refuses is not stored, and the row cannot be parked
		t.Parallel()
		s := openShop(t, outbox.Log)
		forgotten := s.forgetful()
		s.ends("published", 1, func() { s.exec(`alter table outbox_parked rename to outbox_away`) }, func() {
			s.takes(4096) // which the relay does not know yet
			fill(s)
		})
		s.exec(`alter table outbox_away rename to outbox_parked`)
		complete(s, forgotten)
	})
}

// Positions that were purged, or have expired: what the stream has is read back from its beginning, by every session until one
// has passed it.
func TestAStreamWithoutPositionsIsReadBackUntilItIsPassed(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	forgotten := s.forgetful()
	stop := s.run(s.relay(outbox.Log))
	for n := range 20 {
		s.add("o-1", n)
	}
	s.eventually(20)
	require.NoError(t, stop())
	s.exec(`update outbox_cursor set seq = 3`)
	stream, err := s.js.Stream(s.ctx, "OUTBOX")
	require.NoError(t, err)
	require.NoError(t, stream.Purge(s.ctx, withSubject("outbox-pos.>")))
	for range 2 {
		r := s.relay(outbox.Log)
		r.Pause()
		stop := s.run(r)
		s.opened(r)
		require.NoError(t, stop())
	}
	forgotten()
	s.run(s.relay(outbox.Log))
	s.add("o-3", 1)
	s.passed(20, false)
}

// A database that was set back has lost events whose application did not hear of their commit, appends them once more under the
// same ids, and gets other numbers for them: each is in the stream once, whether that was before the relay opened or after.
func TestAnEventThatIsAppendedAgainAfterASetBack(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	forgotten := s.forgetful()
	ids := make([]string, 6)
	add := func(n int) {
		s.exec(`select outbox_append('order', 'o-1', 'order.paid', $1, event_id => $2)`, fmt.Sprintf(`{"n": %d}`, n), ids[n])
	}
	stop := s.run(s.relay(outbox.Log))
	for n := range ids {
		ids[n] = uuid.NewString()
		add(n)
	}
	s.eventually(6)
	require.NoError(t, stop())
	forgotten()
	// What a backup of the time after the second event would have.
	s.exec(`delete from outbox_log where seq > 2`)
	s.exec(`select setval(pg_get_serial_sequence('outbox_log', 'seq'), 2)`)
	s.exec(`update outbox_cursor set seq = 2, reading = 2`)
	s.exec(`update outbox_stream set generation = generation - 1, marker = 1`)
	s.add("o-2", 0)
	add(5)
	add(3)
	for n := range 3 {
		r := s.relay(outbox.Log)
		stop = s.run(r)
		s.opened(r)
		if n == 0 {
			add(4)
		}
		s.add("o-2", n+1)
		s.eventually(8 + n)
		require.NoError(t, stop())
		forgotten()
	}
	require.Equal(t, "0 1 2 3", s.numbered("o-2"))
	require.Equal(t, words(0, 5), s.numbered("o-1"))
}
