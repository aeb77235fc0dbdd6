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

var world = seeds.World[schedule.Options]{Does: "commands", Draw: schedule.Draw, Aimed: schedule.Aimed, Aims: schedule.Aims, Smaller: schedule.Smaller, Run: func(o schedule.Options, t *trace.Trace) seeds.Went {
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

// TestASeedRepeats shows that a seed makes the same run again.
func TestASeedRepeats(t *testing.T) { world.Repeats(t) }
