package publish

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

func chainOf(id string, last uint64, bodies ...string) *Chain {
	c := &Chain{Filter: streams.Names{}.EventsOf("thing", "default."+id), Last: last}
	for i, b := range bodies {
		c.Msgs = append(c.Msgs, event(id, fmt.Sprintf("thing.step-%d", i), b))
	}
	return c
}

func (g *ground) bodies(filter string) []string {
	g.T.Helper()
	var list []string
	for _, m := range g.Held(streams.EventStream, filter) {
		list = append(list, string(m.Data))
	}
	return list
}

func TestChainsFollowTheirLast(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		for _, n := range []int{3, 40} { // one by one, and in a batch
			var chains []*Chain
			for i := range n {
				chains = append(chains, chainOf(fmt.Sprintf("e-%d-%d", n, i), 0, "a", "b", "c"))
			}
			chains = append(chains, &Chain{Filter: "instar.evt.none.>"})
			a.AppendChains(g.Ctx, streams.EventStream, chains)
			for i, c := range chains[:n] {
				require.NoError(t, c.Err)
				require.Equal(t, 3, c.Done)
				held := g.Held(streams.EventStream, c.Filter)
				require.Equal(t, []string{"a", "b", "c"}, g.bodies(c.Filter))
				require.Equal(t, held[2].Sequence, c.Last)
				more := chainOf(fmt.Sprintf("e-%d-%d", n, i), c.Last, "d", "e")
				a.AppendChains(g.Ctx, streams.EventStream, []*Chain{more})
				require.NoError(t, more.Err)
				require.Equal(t, []string{"a", "b", "c", "d", "e"}, g.bodies(c.Filter))
			}
			require.Equal(t, &Chain{Filter: "instar.evt.none.>"}, chains[n])
		}
	})
}

func TestAStaleChainAddsNothingAndFailsNobody(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		for _, n := range []int{3, 60} {
			var chains []*Chain
			for i := range n {
				c := chainOf(fmt.Sprintf("e-%d-%d", n, i), 0, "a", "b")
				if i%3 == 1 {
					c.Last = 99999
				}
				chains = append(chains, c)
			}
			a.AppendChains(g.Ctx, streams.EventStream, chains)
			for i, c := range chains {
				if i%3 == 1 {
					require.ErrorIs(t, c.Err, ErrConflict)
					require.Zero(t, c.Done)
					require.Empty(t, g.bodies(c.Filter))
					c.Last, c.Err = 0, nil // as its owner does when it has looked
					continue
				}
				require.NoError(t, c.Err)
				require.Equal(t, []string{"a", "b"}, g.bodies(c.Filter))
			}
			a.AppendChains(g.Ctx, streams.EventStream, chains)
			for _, c := range chains {
				require.NoError(t, c.Err)
				require.Equal(t, []string{"a", "b"}, g.bodies(c.Filter))
			}
		}
	})
}

// A chain that is all that there is in its stream may have to be where it says: what is elsewhere is refused, also when nothing under its filter has come between.
func TestAChainHasItsPlaces(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		for _, n := range []int{3, 40} { // one by one, and in a batch
			id := fmt.Sprint("placed-", n)
			seq := a.Append(g.Ctx, []Write{{streams.EventStream, event(id+"-other", "thing.step-0", "x")}})[0].Seq
			c := chainOf(id, 0)
			c.Place = seq
			for i := range n {
				c.Msgs = append(c.Msgs, event(id, fmt.Sprint("thing.step-", i), fmt.Sprint(i)))
			}
			a.AppendChains(g.Ctx, streams.EventStream, []*Chain{c})
			require.ErrorIs(t, c.Err, ErrConflict)
			require.Empty(t, g.bodies(c.Filter))
			c.Err, c.Place = nil, seq+1
			a.AppendChains(g.Ctx, streams.EventStream, []*Chain{c})
			require.NoError(t, c.Err)
			require.Equal(t, seq+uint64(n), c.Last)
			require.Equal(t, c.Last+1, c.Place)
			require.Len(t, g.bodies(c.Filter), n)
		}
	})
}

// A message that the stream has had before does not set the chain back: others have come since, and whoever keeps Last would take these for none.
func TestAMessageOfBeforeDoesNotSetAChainBack(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		first, again := chainOf("e", 0, "a", "b", "c"), chainOf("e", 0, "a")
		for _, c := range []*Chain{first, again} {
			c.Msgs[0].Header[streams.HeaderID] = []string{"the same"}
		}
		a.AppendChains(g.Ctx, streams.EventStream, []*Chain{first})
		require.NoError(t, first.Err)
		again.Last = first.Last
		a.AppendChains(g.Ctx, streams.EventStream, []*Chain{again})
		require.NoError(t, again.Err)
		require.Equal(t, 1, again.Done)
		require.Equal(t, first.Last, again.Last)
		require.Equal(t, []string{"a", "b", "c"}, g.bodies(first.Filter))
	})
}

// The second message of a chain is refused for good: the first stays, the third is not written, neighbours are.
func TestAChainBreaksInTheMiddle(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		for _, n := range []int{3, 60} {
			var chains []*Chain
			for i := range n {
				chains = append(chains, chainOf(fmt.Sprintf("e-%d-%d", n, i), 0, "a", "b", "c"))
			}
			chains[1].Msgs[1].Header["Nats-TTL"] = []string{"soon"}
			a.AppendChains(g.Ctx, streams.EventStream, chains)
			for i, c := range chains {
				if i == 1 {
					require.True(t, Permanent(c.Err), "%v", c.Err)
					require.LessOrEqual(t, c.Done, 1)
					require.Equal(t, []string{"a"}, g.bodies(c.Filter))
					continue
				}
				require.NoError(t, c.Err)
				require.Equal(t, []string{"a", "b", "c"}, g.bodies(c.Filter))
			}
		}
	})
}

func TestALongChain(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		c := &Chain{Filter: streams.Names{}.EventsOf("thing", "default.a")}
		var want []string
		for i := range maxBatch + 100 { // more than an atomic batch takes
			want = append(want, fmt.Sprint(i))
			c.Msgs = append(c.Msgs, event("a", "thing.added", fmt.Sprint(i)))
		}
		a.AppendChains(g.Ctx, streams.EventStream, []*Chain{c})
		require.NoError(t, c.Err)
		require.Equal(t, len(want), c.Done)
		require.Equal(t, want, g.bodies(c.Filter))
	})
}

func TestAChainWithoutAnswerIsNotDone(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		ctx, cancel := context.WithCancel(g.Ctx)
		cancel()
		c := chainOf("a", 0, "a", "b")
		a.AppendChains(ctx, streams.EventStream, []*Chain{c})
		if c.Err == nil { // the answers were there already
			require.Equal(t, 2, c.Done)
			return
		}
		require.ErrorIs(t, c.Err, ErrUnanswered)
	})
}
