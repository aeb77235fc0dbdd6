package relay

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
)

func leased(node string) func(*Relay) {
	return func(r *Relay) {
		r.Node = node
		r.Leases = &shard.NATSLeases{JS: r.JS, Source: "shop", Node: node, Life: time.Second}
	}
}

func (s *shop) holds(r *Relay, n int) {
	s.t.Helper()
	if !waits(func() bool { return len(r.Status().Shards) == n }) {
		require.Len(s.t, r.Status().Shards, n, "shards of "+r.Node)
	}
}

// A node that comes gets its share from one that has more, while rows are written; what a node had that disappears goes to
// the others.
func TestNodesShareTheShards(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	stop := make(chan struct{})
	wait := s.write(2, stop)
	a := s.relay(outbox.Log, leased("a"))
	stopA := s.run(a)
	s.holds(a, 4)
	b := s.relay(outbox.Log, leased("b"))
	stopB := s.run(b)
	s.holds(b, 2)
	s.holds(a, 2)
	c := s.relay(outbox.Log, leased("c"))
	s.run(c)
	s.holds(c, 1)
	n := s.stored()
	require.True(t, waits(func() bool { return s.stored() > n+200 }))

	require.NoError(t, stopB()) // says that it goes
	require.True(t, waits(func() bool { return len(a.Status().Shards) == 2 && len(c.Status().Shards) == 2 }))
	a.NC.Close() // can say nothing
	s.holds(c, 4)
	close(stop)
	wait()
	s.check()
	_ = stopA()
}

// asking counts how often a relay has asked for its share.
type asking struct {
	shard.Leases
	asked atomic.Int64
}

func (l *asking) Share(ctx context.Context, count, held int) int {
	defer l.asked.Add(1)
	return l.Leases.Share(ctx, count, held)
}

// The one shard of the other modes stays with who has it.
func TestTheOnlyShardStays(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Claim)
	b := s.relay(outbox.Claim, leased("b"))
	s.run(b)
	s.add("o-1", 1)
	s.eventually(1)
	lease := &asking{}
	a := s.relay(outbox.Claim, leased("a"), func(r *Relay) { lease.Leases, r.Leases = r.Leases, lease })
	s.run(a)
	require.Eventually(t, func() bool { return lease.asked.Load() > 1 }, waitFor, tick)
	for n := range 30 {
		s.add(fmt.Sprint("o-", n), n)
		s.eventually(n + 2)
	}
	s.holds(b, 1)
	s.holds(a, 0)
}

// A relay that cannot do its work for long does not keep others from it.
func TestARelayThatCannotWorkGivesItsShardsBack(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	a := s.relay(outbox.Log, leased("a"), func(r *Relay) { r.Config.Lease = 500 * time.Millisecond })
	s.run(a)
	s.holds(a, 4)
	a.Config.DSN = "postgres://nobody@127.0.0.1:1/none"
	a.Wake() // its run sees that
	b := s.relay(outbox.Log, leased("b"))
	s.run(b)
	s.holds(b, 2)
	s.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
	s.holds(b, 4)
	for n := range 20 {
		s.add(fmt.Sprint("o-", n), n)
	}
	s.check()
}
