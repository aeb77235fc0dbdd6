package relay

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Whatever the nodes have, what they should have is all shards, and differs by one at most; who has its share moves nothing.
func TestShares(t *testing.T) {
	t.Parallel()
	for count := 1; count <= 9; count++ {
		for a := range count + 1 {
			for b := range count + 1 - a {
				for nodes := 1; nodes <= 5; nodes++ {
					have := map[string]int{"a": a}
					for i := 1; i < nodes; i++ {
						have[string(rune('a'+i))] = 0
					}
					if nodes > 1 {
						have["b"] = b
					}
					next := map[string]int{}
					total := 0
					for name := range have {
						next[name] = share(count, have, name)
						total += next[name]
					}
					require.Equal(t, count, total, "%d of %v", count, have)
					all := slices.Sorted(maps.Values(next))
					require.LessOrEqual(t, all[len(all)-1]-all[0], 1, "%d of %v", count, have)
					for name := range next {
						require.Equal(t, next[name], share(count, next, name), "%d of %v moves on", count, next)
					}
				}
			}
		}
	}
	require.Equal(t, 1, share(1, map[string]int{"b": 1, "a": 0}, "b"), "the only shard stays where it is")
}

func leased(node string) func(*Relay) {
	return func(r *Relay) {
		r.Node = node
		r.Leases = &NATSLeases{JS: r.JS, Source: "shop", Node: node, Life: time.Second}
	}
}

func (s *shop) holds(r *Relay, n int) {
	s.t.Helper()
	var st outbox.Status
	if !waits(func() bool { st, _ = r.Status(s.ctx); return len(st.Shards) == n }) {
		require.Len(s.t, st.Shards, n, "shards of "+r.Node)
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
	require.True(t, waits(func() bool {
		one, _ := a.Status(s.ctx)
		other, _ := c.Status(s.ctx)
		return len(one.Shards) == 2 && len(other.Shards) == 2
	}))
	a.NC.Close() // can say nothing
	s.holds(c, 4)
	close(stop)
	wait()
	s.check()
	_ = stopA()
}

// The one shard of the other modes stays with who has it.
func TestTheOnlyShardStays(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Claim)
	b := s.relay(outbox.Claim, leased("b"))
	s.run(b)
	s.add("o-1", 1)
	s.eventually(1)
	a := s.relay(outbox.Claim, leased("a"))
	s.run(a)
	require.Eventually(t, func() bool { l := a.Leases.(*NATSLeases); l.mu.Lock(); defer l.mu.Unlock(); return !l.looked.IsZero() }, waitFor, tick)
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
	a.mu.Lock()
	a.Config.DSN = "postgres://nobody@127.0.0.1:1/none"
	a.mu.Unlock()
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
