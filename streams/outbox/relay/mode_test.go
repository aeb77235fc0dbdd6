package relay

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

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

// The limit of the lag refuses in each mode, and lets go again.
func TestTheLimitOfTheLagHoldsInEachMode(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
		require.NoError(t, outbox.Init(t.Context(), s.dsn, "", outbox.Settings{MaxLag: 50}))
		r, _ := s.begin(mode)
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

// What was appended in the former mode wal is in a replication slot, which no relay reads: a database in that mode is refused. One that has
// left it goes on in mode log, whatever relays of that mode have noted.
func TestTheFormerModeIsRefused(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	stop := s.run(s.relay(outbox.Log))
	s.add("o-1", 1)
	s.eventually(1)
	s.settled()
	require.NoError(t, stop())
	// The tables as the program before made them, with what its relay of mode wal has left.
	for _, change := range []string{
		`alter table outbox_settings drop constraint outbox_settings_mode_check`,
		`alter table outbox_settings add column wal_prefix text not null default 'instar.outbox', add column wal_slot text`,
		`alter table outbox_stream add column slot text not null default ''`,
		`alter table outbox_parked add column message bytea`,
		`alter table outbox_late add column message bytea`,
		`update outbox_settings set mode = 'wal', wal_slot = 'instar_outbox_shop'`,
		`insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster, slot) select source, 'wal', 0, stream, 'outbox-pos.shop.wal.0', marker + 1, cluster, 'instar_outbox_shop' from outbox_stream limit 1`,
		`update outbox_cursor set seq = seq + 7, reading = reading + 7 where shard = 0`,
		`select setval(pg_get_serial_sequence('outbox_log', 'seq'), 20)`,
		`insert into outbox_late (shard, seq, event_id, message, marker) select n, 1, gen_random_uuid(), '{}', 1000 from generate_series(0, 3) as n`,
		`insert into outbox_late (shard, seq, event_id, message) select n, 30, gen_random_uuid(), '{}' from generate_series(0, 3) as n`,
	} {
		s.exec(change)
	}
	for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim, "wal"} {
		err := s.relay(mode).Run(s.ctx)
		var fatal *PermanentError
		require.ErrorAs(t, err, &fatal)
		require.ErrorIs(t, err, outbox.ErrSchema)
		require.ErrorContains(t, err, "it is in mode wal, which this program does not have")
	}

	s.exec(`update outbox_settings set mode = 'log'`) // as the error says
	s.exec(`select outbox_settings_renew()`)
	require.NoError(t, outbox.Init(s.ctx, s.dsn, "", outbox.Settings{}))
	s.add("o-1", 2)
	s.exec(`select outbox_append('order', 'o-2', 'order.paid', '{"n": 1}', not_before => now() + interval '100 milliseconds')`)
	stop = s.run(s.relay(outbox.Log))
	s.eventually(3)
	s.settled()
	require.NoError(t, stop())
	stop = s.run(s.relay(outbox.Log))
	for n := range 5 {
		s.add(fmt.Sprint("o-", n), 3)
	}
	s.check()
	require.NoError(t, stop())
	require.NoError(t, outbox.Init(s.ctx, s.dsn, "", outbox.Settings{Mode: outbox.Claim}))
	s.run(s.relay(outbox.Claim))
	s.add("o-1", 4)
	s.eventually(9)
}
