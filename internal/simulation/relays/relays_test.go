package relays

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/internal/simulation/seeds"
	"github.com/bcc94042/instar/internal/simulation/shop"
	"github.com/bcc94042/instar/internal/simulation/trace"
)

func TestMain(m *testing.M) { seeds.Main(m) }

var world = seeds.World[shop.Options]{Does: "events", Draw: shop.Draw, Aimed: shop.Options.Aimed, Aims: shop.Aims, Smaller: shop.Options.Smaller, Run: func(o shop.Options, t *trace.Trace) seeds.Went {
	w := newWorld(o, t)
	w.run()
	return seeds.Went{Done: w.judge.Seen(), Failures: w.failures, Wrong: w.wrong}
}}

// TestSeeds runs seeds. Without the runtime held still it runs one, in which nothing goes wrong: the parts fit together, and the race detector sees them.
func TestSeeds(t *testing.T) {
	if pinned.Pinned {
		world.All(t)
		return
	}
	o := shop.Draw(1)
	o.Faults = nil
	r := world.Once(t, o.Seed, o, false)
	require.Empty(t, r.Failures)
	require.Positive(t, r.Done)
}

// TestASeedRepeats shows that a seed makes the same run again.
func TestASeedRepeats(t *testing.T) { world.Repeats(t) }
