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
	require.Eventually(t, func() bool { // a call postpones what another session has locked
		s.exec(`select outbox_maintain()`)
		return s.count(`select read_shards from outbox_settings`) == 2
	}, waitFor, tick)
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
