package relay

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
)

// batches counts the batches that were stored, and the rows in them by tries.
type batches struct {
	control.NoMeter
	n     atomic.Int64
	tried [11]atomic.Int64
}

func (b *batches) Tried(tries, rows int) { b.tried[min(tries, 10)].Add(int64(rows)) }

func (b *batches) Sent(int, time.Duration) { b.n.Add(1) }

// parksOthers runs a relay that takes nothing but order.paid, and tries nothing again by itself.
func (s *shop) parksOthers() (stop func() error) {
	s.t.Helper()
	r := s.relay(outbox.Log, picky)
	end := s.run(r)
	return func() error { // once it is past all rows: the next relay would read those again whose parking was cut short
		s.t.Helper()
		last := s.count(`select max(seq) from outbox_log`)
		require.Eventually(s.t, func() bool { at, _ := r.control.Position(); return at >= int64(last) }, waitFor, tick)
		return end()
	}
}

// An aggregate with many rows behind a redriven one is published in batches, between which others go on.
func TestALargeParkedAggregateHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	const waiting = 3_000
	stop := s.parksOthers()
	s.exec(`select outbox_append('order', 'o-1', 'order.unheard', '{"n": 0}')`)
	s.exec(`select outbox_append('order', 'o-1', 'order.paid', jsonb_build_object('n', n)) from generate_series(1, $1::int) as n`, waiting)
	s.parks(waiting + 1)
	require.NoError(t, stop())

	var count batches
	r := s.relay(outbox.Log, func(r *Relay) { r.Meter = &count })
	s.run(r)
	s.holds(r, 4)
	s.add("o-2", 1)
	s.exec(`update outbox_parked set next_retry_at = now(), state = 'NEW' where state = 'FAILED'`)
	r.Wake()
	s.eventually(waiting + 2)
	require.Equal(t, words(0, waiting), s.numbered("o-1"))
	list := s.events()
	for i, m := range list {
		if m.Header.Get("ce-subject") == "order/o-2" {
			require.Less(t, i, 2000, "rows before that of another aggregate")
		}
	}
	require.Less(t, count.n.Load(), int64(waiting/100), "batches")
	s.parks(0)
}

// Many aggregates that are due at once go on together, whichever of them are refused again.
func TestManyParkedAggregatesGoOnTogether(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	stop := s.parksOthers()
	for _, kind := range []string{"order.unheard", "order.paid", "order.strange", "order.paid"} {
		s.exec(`select outbox_append('order', 'o-' || n, $1, jsonb_build_object('n', 1)) from generate_series(1, 500) as n`, kind)
	}
	s.parks(2000)
	require.NoError(t, stop())
	s.exec(`update outbox_parked set next_retry_at = now() where state = 'FAILED'`)
	var count batches
	stop = s.run(s.relay(outbox.Log, func(r *Relay) {
		r.Meter = &count
		r.Config.BaseBackoff, r.Config.MaxBackoff = time.Hour, time.Hour
		r.Config.Types = &outbox.Types{Names: []string{"order.paid", "order.unheard"}, Unknown: outbox.ParkUnknown}
	}))
	s.eventually(1000)
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from outbox_parked where state = 'FAILED' and event_type = 'order.strange' and attempts = 1 and next_retry_at > now()`) == 500
	}, waitFor, tick)
	require.NoError(t, stop())
	require.Equal(t, 1000, s.stored())
	require.Less(t, count.n.Load(), int64(100), "batches")
	require.Equal(t, []int64{500, 500}, []int64{count.tried[1].Load(), count.tried[2].Load()})
	require.Equal(t, 1000, s.count(`select count(*) from outbox_parked`))

	// Discarded while a relay runs: the next one is due.
	s.run(s.relay(outbox.Log))
	s.eventually(1000)
	n, err := (&outbox.Store{Pool: s.pool}).Discard(s.ctx, outbox.Filter{EventType: "order.strange"}, "me")
	require.NoError(t, err)
	require.Equal(t, int64(500), n)
	s.eventually(1500)
	for _, id := range []string{"o-1", "o-250", "o-500"} {
		require.Equal(t, "1 1 1", s.numbered(id))
	}
	s.parks(0)
	require.False(t, strings.Contains(s.positions(), "order.strange"))
}
