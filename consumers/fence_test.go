package consumers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// A report of an owner whose partition was claimed since is refused, and changes nothing.
func TestAReportOfAnEarlierClaimIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine)
	one := w.join("one")
	w.shared(one)
	w.ask(toThing("a", "create", ""))
	var before [streams.Partitions]Fence
	for p := range before {
		before[p] = Fence{p, one.Claim(p)}
		require.NotZero(t, before[p].Claim)
	}
	told := func(f Fence) machines.Answer {
		cmd := toThing("a", "add", `{"n":1}`)
		cmd.Fence = f.String()
		return w.ask(cmd)
	}
	require.Equal(t, machines.Applied, told(before[0]).Outcome)

	two := w.join("two")
	w.shared(one, two)
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
	require.Equal(t, machines.Applied, told(Fence{moved, two.Claim(moved)}).Outcome)
	w.eventually("the node of the thing knows of the claim", func() bool { return told(before[moved]).Refusal != nil })
	entity, _ := w.entity(thingMachine, "default.a")
	a := told(before[moved])
	require.Equal(t, machines.Refused, a.Outcome)
	require.Equal(t, machines.CodeStale, a.Refusal.Code)
	after, _ := w.entity(thingMachine, "default.a")
	require.Equal(t, entity.Version, after.Version)
	require.Equal(t, entity.Data, after.Data)
}
