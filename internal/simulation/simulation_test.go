package simulation

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/internal/simulation/seeds"
	"github.com/bcc94042/instar/internal/simulation/trace"
)

func TestMain(m *testing.M) { seeds.Main(m) }

var world = seeds.World[schedule.Options]{Does: "commands", Draw: schedule.Draw, Aimed: schedule.Aimed, Smaller: schedule.Smaller, Run: func(o schedule.Options, t *trace.Trace) seeds.Went {
	if slices.ContainsFunc(o.Faults, func(f Fault) bool { return f.Kind == "restore" }) {
		time.Sleep(27 * 366 * 24 * time.Hour) // bubbles begin in 2000, and what a restore counts from is in 2026
	}
	w := newWorld(o, t)
	w.run()
	return seeds.Went{Done: w.answered(), Failures: w.failures, Wrong: w.wrong}
}}

// TestSeeds runs seeds. Without the runtime held still it runs one, in which nothing goes wrong: the parts fit together, and the race detector sees them.
func TestSeeds(t *testing.T) {
	if pinned.Pinned {
		world.All(t)
		return
	}
	o := schedule.Draw(1)
	o.Faults, o.Commands = nil, 4
	r := world.Once(t, o.Seed, o, false)
	require.Empty(t, r.Failures)
	require.Positive(t, r.Done)
}

// TestASeedRepeats runs the same seeds twice: all steps are equal, and the sums of different seeds are not.
func TestASeedRepeats(t *testing.T) {
	if !pinned.Pinned {
		t.Skip("the runtime is not held still; cmd/simulate builds a program where it is")
	}
	first, sums := map[uint64]seeds.Report[schedule.Options]{}, map[uint64]bool{}
	for seed := uint64(1); seed <= 10; seed++ {
		first[seed] = world.Once(t, seed, schedule.Draw(seed), true)
		sums[first[seed].Sum] = true
	}
	require.Len(t, sums, len(first))
	for seed := uint64(1); seed <= 10; seed++ {
		again, before := world.Once(t, seed, schedule.Draw(seed), true).Taken, first[seed].Taken
		n := 0
		for n < min(len(again), len(before)) && again[n] == before[n] {
			n++
		}
		require.Equal(t, before[n:min(n+5, len(before))], again[n:min(n+5, len(again))], "seed %d from its step %d on", seed, n+1)
	}
}
