package relay

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Positions in the WAL are no numbers of rows: a database that comes back from the mode wal goes on in the mode log, and
// back. The slot goes with the mode: nobody would read it.
func TestFromTheWALToTheLogAndBack(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	_, stop := s.begin(outbox.WAL, named)
	s.add("o-1", 1)
	s.eventually(1)
	require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_cursor where seq > 0`) > 0 }, waitFor, tick)
	require.NoError(t, stop())
	change := func(mode outbox.Mode) error {
		return outbox.Init(t.Context(), s.dsn, "", outbox.Settings{Mode: mode})
	}
	require.NoError(t, change(outbox.Log))
	require.Zero(t, s.count(`select count(*) from pg_replication_slots where database = current_database()`))
	stop = s.run(s.relay(outbox.Log))
	s.add("o-1", 2)
	s.add("o-2", 3)
	s.eventually(3)
	require.Equal(t, "1 2", s.numbered("o-1"))
	require.NoError(t, stop())

	require.NoError(t, change(outbox.WAL))
	r := s.relay(outbox.WAL, named)
	s.run(r)
	s.reads(r)
	s.add("o-1", 4)
	s.eventually(4)
	require.Equal(t, "1 2 4", s.numbered("o-1"))
}

// What was emitted and not yet read is seen by no other mode: the mode stays until it was read.
func TestAnUnreadWALKeepsItsMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s, named := openWAL(t, outbox.WAL)
			_, stop := s.begin(outbox.WAL, named)
			s.add("o-1", 1)
			s.eventually(1)
			change := func() error {
				return outbox.Init(t.Context(), s.dsn, "", outbox.Settings{Mode: mode})
			}
			err := change()
			require.ErrorIs(t, err, outbox.ErrRowsWait)
			require.ErrorContains(t, err, "reads the slot")
			require.NoError(t, stop())
			// Committed without waiting for the disk: it is not there yet.
			s.exec(`set synchronous_commit = off`)
			s.add("o-1", 2)
			err = change()
			require.ErrorIs(t, err, outbox.ErrRowsWait)
			require.ErrorContains(t, err, "instar relay drain shop")
			s.add("o-1", 3) // still in that mode

			r := s.relay(outbox.WAL, named)
			stop = s.run(r)
			require.NoError(t, r.Drain(t.Context()))
			require.ErrorIs(t, stop(), ErrDrained)
			s.exec(`select pg_logical_emit_message(true, 'instar.outbox.heartbeat', ''), pg_logical_emit_message(true, 'another', 'instar.outbox')`) // not ours
			require.NoError(t, change())
			s.run(s.relay(mode))
			s.add("o-1", 4)
			s.eventually(4)
			require.Equal(t, "1 2 3 4", s.numbered("o-1"))
			require.Equal(t, 4, s.stored(), fmt.Sprint("events after the change to ", mode))
		})
	}
}

// In mode wal nothing sees what is emitted before there is a slot: it is refused.
func TestNothingIsEmittedForNobody(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	appended := func() error {
		_, err := s.pool.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{"n": 1}')`)
		return err
	}
	require.ErrorContains(t, appended(), "no relay reads")
	r := s.relay(outbox.WAL, named)
	stop := s.run(r)
	require.Eventually(t, func() bool { return appended() == nil }, waitFor, tick)
	s.eventually(1)
	require.NoError(t, stop())
	require.NoError(t, appended(), "the slot has it")
	s.run(s.relay(outbox.WAL, named))
	s.eventually(2)
}

// A relay that runs notices that its database has another mode, and ends in order for another one; with another number of
// shards it goes on by itself.
func TestAChangeUnderARelayIsNoticed(t *testing.T) {
	t.Parallel()
	for _, set := range []outbox.Settings{{Mode: outbox.Claim}, {Shards: 7}} {
		t.Run(fmt.Sprint(set.Mode, set.Shards), func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Log)
			ended := make(chan error, 1)
			r := s.relay(outbox.Log)
			ctx, cancel := context.WithCancel(s.ctx)
			var gone sync.WaitGroup
			gone.Go(func() { ended <- r.Run(ctx) })
			t.Cleanup(func() { cancel(); gone.Wait() })
			s.add("o-1", 1)
			s.eventually(1)
			require.Eventually(t, func() bool { return outbox.Init(s.ctx, s.dsn, "", set) == nil }, waitFor, tick) // when the cursor says that it was sent
			for n := range 9 {
				s.add(fmt.Sprint("o-", n), n)
			}
			if set.Mode != "" {
				require.ErrorIs(t, <-ended, ErrChanged)
				s.run(s.relay(set.Mode))
			} else {
				s.holds(r, set.Shards)
				require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_cursor`) == set.Shards }, waitFor, tick)
			}
			s.eventually(10)
			require.Equal(t, 10, s.stored())
		})
	}
}

// A stream that is set back behind a change to fewer shards gets what it has lost from all of the old ones, and a relay that runs
// gives those up once the table has no more of their rows.
func TestFewerShards(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	fill := func() {
		for n := range 20 {
			s.add(fmt.Sprint("o-", n), n)
		}
	}
	stop := s.run(s.relay(outbox.Log))
	fill()
	s.eventually(20)
	require.NoError(t, stop())
	old := s.backup()
	stop = s.run(s.relay(outbox.Log))
	fill()
	s.eventually(40)
	require.NoError(t, stop())
	require.Equal(t, 4, s.count(`select count(distinct shard) from outbox_log`))
	require.NoError(t, outbox.Init(s.ctx, s.dsn, "", outbox.Settings{Shards: 2}))
	s.restore(old)
	r := s.relay(outbox.Log)
	s.run(r)
	fill()
	s.eventually(60)
	s.check()
	require.Equal(t, 4, s.count(`select count(*) from outbox_cursor`))

	s.settled()
	s.exec(`update outbox_log set day = day - 20`)
	s.exec(`update outbox_settings set narrowed = narrowed - 20`)
	s.exec(`select outbox_maintain()`)
	require.Equal(t, 2, s.count(`select read_shards from outbox_settings`))
	s.holds(r, 2)
	fill()
	s.eventually(80)
}
