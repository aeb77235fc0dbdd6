package relay

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
)

// checkEvents compares outbox_event with the stream.
func (s *shop) checkEvents() {
	s.t.Helper()
	want := map[string][]string{}
	total := 0
	rows, err := s.pool.Query(s.ctx, `select aggregate_type || '/' || aggregate_id, event_id::text from outbox_event order by seq`)
	require.NoError(s.t, err)
	var agg, id string
	_, err = pgx.ForEachRow(rows, []any{&agg, &id}, func() error { want[agg] = append(want[agg], id); total++; return nil })
	require.NoError(s.t, err)
	s.eventually(total)
	compare(s.t, want, s.events())
}

func (s *shop) allSent() {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.count(`select count(*) from outbox_event where status <> 'SENT'`) == 0 }, waitFor, tick)
}

func TestClaim(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Claim)
	for n := range 250 {
		s.add(fmt.Sprint("o-", n%7), n)
	}
	r := s.relay(outbox.Claim)
	stop := s.run(r)
	s.eventually(250)
	s.allSent()
	s.add("o-1", 250)
	r.Wake()
	s.eventually(251)
	s.checkEvents()
	s.allSent()
	require.NoError(t, stop())
}

// A relay that stops between its claim and its publish, or between its publish and its mark, for longer than its lease.
func TestClaimZombie(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"publish", "claim"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Claim)
			stuck, free := make(chan struct{}), make(chan struct{})
			var once sync.Once
			zombie := s.relay(outbox.Claim, func(r *Relay) { r.Config.Lease = time.Second; r.Config.Batch = 10 })
			zombie.control.Hook = func(at string) {
				if at == point && s.stored() >= 20 { // published and, at a claim, not yet marked
					once.Do(func() { close(stuck); <-free })
				}
			}
			for n := range 60 {
				s.add(fmt.Sprint("o-", n%5), n)
			}
			stopZombie := s.run(zombie)
			<-stuck
			successor := s.relay(outbox.Claim, func(r *Relay) { r.Node = "b" })
			s.run(successor)
			s.eventually(60)
			s.allSent()
			close(free)
			for n := 0; n < 3000 && zombie.restarts.Load() == 0; n++ { // until it claims one of them
				s.add(fmt.Sprint("o-", n%5), n)
			}
			require.Positive(t, zombie.restarts.Load())
			s.checkEvents()
			_ = stopZombie()
			s.checkEvents()
		})
	}
}

func TestClaimFailsAnAggregate(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Claim)
	s.takes(4096)
	for n := range 20 {
		s.add(fmt.Sprint("o-", n%2), n)
		if n == 9 {
			s.exec(`select outbox_append('order', 'o-1', 'order.paid', to_jsonb(repeat('x', 5000)))`)
		}
	}
	r := s.relay(outbox.Claim, func(r *Relay) {
		r.Config.Attempts = 3
		r.Config.Types = &outbox.Types{Names: []string{"order.paid"}, Unknown: outbox.ParkUnknown}
	})
	stop := s.run(r)
	s.exec(`select outbox_append('order', 'o-9', 'order.unheard', '{}')`)
	s.eventually(15)
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from outbox_event where status = 'DEAD' and attempts = 3`) == 2
	}, waitFor, tick)
	require.Equal(t, 15, s.stored())
	require.NoError(t, stop())
	s.takes(-1)
	store := &outbox.Store{Pool: s.pool}
	_, err := store.Redrive(s.ctx, outbox.Filter{AggregateType: "order", AggregateID: "o-1"}, "me")
	require.NoError(t, err)
	_, err = store.Discard(s.ctx, outbox.Filter{EventType: "order.unheard"}, "me")
	require.NoError(t, err)
	s.run(s.relay(outbox.Claim))
	s.checkEvents()
}

// losing is a lease that is lost once.
type losing struct {
	shard.Alone
	lost  chan struct{}
	given int
}

func (l *losing) Acquire(ctx context.Context, n int) (<-chan struct{}, func(), bool) {
	if l.given++; l.given == 1 {
		return l.lost, func() {}, true
	}
	return l.Alone.Acquire(ctx, n)
}

// A lease that is lost when some lanes are drained ends the others as well: their session is gone.
func TestALeaseThatIsLostDuringADrain(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Claim)
	s.exec(`select outbox_append('order', 'o-1', 'order.paid', jsonb_build_object('n', n)) from generate_series(1, 300) as n`)
	lease := &losing{lost: make(chan struct{})}
	r := s.relay(outbox.Claim, func(r *Relay) { r.Config.Batch, r.Leases = 1, lease })
	published := 0 // by the one lane that has rows
	r.control.Hook = func(at string) {
		if at == "published" {
			if published++; published == 20 {
				close(lease.lost)
			}
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, waitFor)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- r.Drain(ctx) }()
	require.Eventually(t, func() bool { _, draining, _ := r.control.Switches(); return draining }, waitFor, tick)
	require.ErrorIs(t, r.Run(ctx), ErrDrained)
	require.NoError(t, <-drained)
	require.EqualValues(t, 1, r.restarts.Load())
	s.checkEvents()
	s.allSent()
}
