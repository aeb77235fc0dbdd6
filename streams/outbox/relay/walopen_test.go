package relay

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// A fault between the making of a slot and the first look at what it has is waited out as any other: the slot is not taken for one that
// somebody else has moved.
func TestAFaultWhileASlotIsOpened(t *testing.T) {
	t.Parallel()
	faulty := func(t *testing.T, s *shop, named func(*Relay), before int) {
		t.Helper()
		s.exec(`create function fault() returns trigger language plpgsql as $$ begin raise exception 'a fault'; end $$`)
		s.exec(`create trigger fault before update on outbox_settings for each row when (new.wal_slot is not null and new.wal_slot is distinct from old.wal_slot) execute function fault()`)
		r := s.relay(outbox.WAL, named)
		stop := s.run(r)
		require.Eventually(t, func() bool { return r.restarts.Load() >= 3 }, waitFor, tick)
		s.exec(`drop trigger fault on outbox_settings`)
		require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_settings where wal_slot is not null`) == 1 }, waitFor, tick)
		s.add("o-1", 9)
		s.eventually(before + 1)
		require.NoError(t, stop())
	}
	t.Run("first", func(t *testing.T) {
		t.Parallel()
		s, named := openWAL(t, outbox.WAL)
		faulty(t, s, named, 0)
	})
	t.Run("back", func(t *testing.T) {
		t.Parallel()
		s, named := openWAL(t, outbox.WAL)
		_, stop := s.begin(outbox.WAL, named)
		s.add("o-1", 1)
		s.eventually(1)
		require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_cursor where seq > 0`) > 0 }, waitFor, tick)
		require.NoError(t, stop())
		change := func(mode outbox.Mode) {
			require.NoError(t, outbox.Init(t.Context(), s.dsn, "", outbox.Settings{Mode: mode}))
		}
		change(outbox.Log)
		stop = s.run(s.relay(outbox.Log))
		s.add("o-1", 2)
		s.eventually(2)
		require.NoError(t, stop())
		change(outbox.WAL)
		faulty(t, s, named, 2)
	})
	t.Run("answer", func(t *testing.T) {
		t.Parallel()
		s, named := openWAL(t, outbox.WAL)
		n := 0
		r := s.relay(outbox.WAL, named, func(r *Relay) {
			r.tamper = func(p *publisher) {
				p.wait = 300 * time.Millisecond
				p.drops = func(*nats.Msg) bool { n++; return n == 2 }
			}
		})
		stop := s.run(r)
		require.Eventually(t, func() bool { return r.restarts.Load() >= 1 }, waitFor, tick)
		require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_settings where wal_slot is not null`) == 1 }, waitFor, tick)
		s.add("o-1", 9)
		s.eventually(1)
		require.NoError(t, stop())
	})
	t.Run("left", func(t *testing.T) {
		t.Parallel()
		s, named := openWAL(t, outbox.WAL)
		r := s.relay(outbox.WAL, named, func(r *Relay) { r.Gate = func() error { return errors.New("the disk is full") } })
		stop := s.run(r)
		require.Eventually(t, func() bool { return r.restarts.Load() >= 2 }, waitFor, tick)
		require.NoError(t, stop())
		require.NoError(t, outbox.Init(t.Context(), s.dsn, "", outbox.Settings{Mode: outbox.Log}))
		require.Zero(t, s.count(`select count(*) from pg_replication_slots where database = current_database()`), "it goes with the mode")
	})
}

// Of two relays with slots of other names, where one takes over from the other at the moment in which that makes its slot, one makes one.
func TestARelayIsOvertakenBeforeItsSlotIsMade(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	opens, made := make(chan struct{}), make(chan struct{})
	b := s.relay(outbox.WAL, named, answered(2, func() { close(opens); <-made })) // has seen that there is no slot, and not yet noted its own
	var over atomic.Bool
	var stopB func() error
	a := s.relay(outbox.WAL, named, func(r *Relay) {
		r.Config.Slot += "_a"
		r.Gate = func() error {
			if over.Load() {
				return errors.New("the disk is full") // so that it does not take over again
			}
			return nil
		}
		r.hook = func(at string) {
			if at == "named" {
				over.Store(true)
				stopB = s.run(b)
				<-opens
			}
		}
	})
	stopA := s.run(a)
	require.Eventually(t, func() bool { return a.restarts.Load() > 0 }, waitFor, tick)
	require.NoError(t, stopA())
	close(made)
	s.reads(b)
	require.Equal(t, 1, s.count(sqlSlots))
	require.NoError(t, stopB())
}
