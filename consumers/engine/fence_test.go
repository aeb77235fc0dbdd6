package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// A report of an owner whose partition was claimed since is refused, and changes nothing.
func TestAReportOfAnEarlierClaimIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one := w.enter("one")
	w.divided(one)
	w.Ask(consumertest.ToThing("a", "create", ""))
	var before [streams.Partitions]cluster.Fence
	for p := range before {
		before[p] = cluster.Fence{Partition: p, Claim: one.Claim(p)}
		require.NotZero(t, before[p].Claim)
	}
	told := func(f cluster.Fence) machines.Answer {
		cmd := consumertest.ToThing("a", "add", `{"n":1}`)
		cmd.Fence = f.String()
		return w.Ask(cmd)
	}
	require.Equal(t, machines.Applied, told(before[0]).Outcome)

	two := w.enter("two")
	w.divided(one, two)
	moved := -1
	for p := range before {
		if two.owns().Has(p) {
			moved = p
		} else {
			require.Equal(t, before[p].Claim, one.Claim(p))
		}
	}
	require.Zero(t, one.Claim(moved))
	require.Greater(t, two.Claim(moved), before[moved].Claim)
	require.Equal(t, machines.Applied, told(cluster.Fence{Partition: moved, Claim: two.Claim(moved)}).Outcome)
	w.Eventually("the node of the thing knows of the claim", func() bool { return told(before[moved]).Refusal != nil })
	entity, _ := w.Entity(consumertest.Things, "default.a")
	a := told(before[moved])
	require.Equal(t, machines.Refused, a.Outcome)
	require.Equal(t, machines.CodeStale, a.Refusal.Code)
	after, _ := w.Entity(consumertest.Things, "default.a")
	require.Equal(t, entity.Version, after.Version)
	require.Equal(t, entity.Data, after.Data)
}
