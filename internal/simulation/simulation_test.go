package simulation

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/internal/simulation/trace"
)

// Flags of the program that cmd/simulate builds.
var (
	flagSeed   = flag.Uint64("seed", 1, "the first seed")
	flagSeeds  = flag.Int("seeds", 1<<40, "how many seeds")
	flagEvery  = flag.Uint64("every", 1, "one in so many seeds")
	flagWithin = flag.Duration("within", time.Hour, "how long")
	flagTrace  = flag.Bool("trace", false, "show every step")
	flagLive   = flag.Bool("live", false, "show every step at once")
	flagAim    = flag.String("aim", "", "what goes wrong instead of what is drawn (schedule.Aimed)")
	flagSums   = flag.Bool("sums", false, "print each step of each seed, with the sum up to it")
	flagFirst  = flag.Bool("first", false, "end with the first seed that fails, and do not make it short")
)

func TestMain(m *testing.M) {
	runtime.MemProfileRate = 0 // what is sampled depends on what was allocated before
	os.Exit(m.Run())
}

// run runs a schedule in a bubble.
func run(t *testing.T, o schedule.Options, traced bool) (report Report) {
	runtime.GC()
	runtime.GC() // what pools keep lives through one
	cryptotest.SetGlobalRandom(t, o.Seed)
	began := time.Now()
	tr := &trace.Trace{On: traced, Live: *flagLive, Keep: *flagSums}
	synctest.Test(t, func(*testing.T) {
		pinned.Seed(o.Seed)
		if slices.ContainsFunc(o.Faults, func(f Fault) bool { return f.Kind == "restore" }) {
			time.Sleep(27 * 366 * 24 * time.Hour) // bubbles begin in 2000, and what a restore counts from is in 2026
		}
		w := newWorld(o, tr)
		w.run()
		report.Failures, report.Commands, report.Wrong = w.failures, w.answered(), w.wrong
	})
	report.Options, report.Steps, report.Sum, report.Lines, report.Taken, report.Took = o, tr.Steps, tr.Sum, tr.Lines, tr.Taken, time.Since(began)
	return report
}

// TestSeeds runs seeds. Without the runtime held still it runs one, in which nothing goes wrong: the parts fit together, and the race detector sees them.
func TestSeeds(t *testing.T) {
	if !pinned.Pinned {
		o := schedule.Draw(1)
		o.Faults, o.Commands = nil, 4
		r := run(t, o, false)
		require.Empty(t, r.Failures)
		require.Positive(t, r.Commands)
		return
	}
	seeds, steps, commands, failed := 0, 0, 0, 0
	began, wrong := time.Now(), map[string]int{}
	for seed := *flagSeed; seeds < *flagSeeds && time.Since(began) < *flagWithin && failed < 3; seed += *flagEvery {
		fmt.Printf("seed %d begins\n", seed)
		r := run(t, schedule.Aimed(schedule.Draw(seed), *flagAim), *flagTrace)
		seeds, steps, commands = seeds+1, steps+r.Steps, commands+r.Commands
		for kind, n := range r.Wrong {
			wrong[kind] += n
		}
		if *flagTrace {
			show(r)
		}
		if *flagSums {
			for i, step := range r.Taken {
				fmt.Printf("seed %d step %d: %s\n", seed, i+1, step)
			}
		}
		if len(r.Failures) > 0 {
			failed++
			fmt.Printf("seed %d: %d steps, %d commands, sum %x, %v\n", seed, r.Steps, r.Commands, r.Sum, r.Failures)
			if *flagFirst {
				break
			}
			if !*flagTrace {
				show(run(t, shrink(t, r), true))
			}
		}
	}
	took := time.Since(began).Seconds()
	fmt.Println("what went wrong:", strings.TrimPrefix(fmt.Sprint(wrong), "map"))
	fmt.Printf("%d seeds from %d, %d steps, %d commands in %.1f s: %.0f steps/s, %.0f commands/s; %d failed\n", seeds, *flagSeed, steps, commands, took, float64(steps)/took, float64(commands)/took, failed)
	require.Zero(t, failed)
}

// show prints the end of a trace; all of it with -trace.
func show(r Report) {
	lines := r.Lines
	if !*flagTrace && len(lines) > 200 {
		lines = lines[len(lines)-200:]
	}
	for _, l := range lines {
		fmt.Println(l)
	}
	fmt.Printf("seed %d with %+v: %d steps, sum %x, %v\n", r.Options.Seed, r.Options, r.Steps, r.Sum, r.Failures)
}

// shrink takes away from a schedule what its failure does not need: faults, clients, commands, lies and waits.
func shrink(t *testing.T, r Report) schedule.Options {
	o, invariant := r.Options, r.Failures[0].Invariant
	fails := func(c schedule.Options) bool {
		r := run(t, c, false)
		return len(r.Failures) > 0 && r.Failures[0].Invariant == invariant
	}
	for again := true; again; {
		again = false
		for _, c := range schedule.Smaller(o) {
			if fails(c) {
				o, again = c, true
				break
			}
		}
	}
	return o
}

// TestASeedRepeats runs the same seeds twice: all steps are equal, and the sums of different seeds are not.
func TestASeedRepeats(t *testing.T) {
	if !pinned.Pinned {
		t.Skip("the runtime is not held still; cmd/simulate builds a program where it is")
	}
	*flagSums = true
	first, sums := map[uint64]Report{}, map[uint64]bool{}
	for seed := uint64(1); seed <= 10; seed++ {
		first[seed] = run(t, schedule.Draw(seed), false)
		sums[first[seed].Sum] = true
	}
	require.Len(t, sums, len(first))
	for seed := uint64(1); seed <= 10; seed++ {
		again, before := run(t, schedule.Draw(seed), false).Taken, first[seed].Taken
		n := 0
		for n < min(len(again), len(before)) && again[n] == before[n] {
			n++
		}
		require.Equal(t, before[n:min(n+5, len(before))], again[n:min(n+5, len(again))], "seed %d from its step %d on", seed, n+1)
	}
}
