// Package seeds runs a simulated world seed after seed, as cmd/simulate asks its programs for by flags: it counts what happened, makes the schedule of a failure short, and shows its
// trace. [World] says what a world is; its runs go in bubbles, with the runtime held still where the program was built so.
package seeds

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/internal/simulation/trace"
)

// Flags of the programs that cmd/simulate builds.
var (
	first  = flag.Uint64("seed", 1, "the first seed")
	many   = flag.Int("seeds", 1<<40, "how many seeds")
	every  = flag.Uint64("every", 1, "one in so many seeds")
	within = flag.Duration("within", time.Hour, "how long")
	traced = flag.Bool("trace", false, "show every step")
	live   = flag.Bool("live", false, "show every step at once")
	aim    = flag.String("aim", "", "what goes wrong instead of what is drawn: kind, or kind@moment")
	sums   = flag.Bool("sums", false, "print each step of each seed, with the sum up to it")
	alone  = flag.Bool("first", false, "end with the first seed that fails, and do not make it short")
)

// shown is how many lines of the trace of a failure are printed: the last ones.
const shown = 200

// World is what is simulated, for schedules of type O.
type World[O any] struct {
	Does    string // what a run counts: commands, events
	Draw    func(seed uint64) O
	Aimed   func(o O, what string) O // with one kind of fault only; empty leaves what was drawn
	Aims    func(what string) error  // whether there is such a kind
	Smaller func(o O) []O            // schedules with a little less in them
	Run     func(o O, t *trace.Trace) Went
}

// Went is how a run went.
type Went struct {
	Done     int // so much of what the world does
	Failures []trace.Failure
	Wrong    map[string]int // how often each kind of fault has struck
}

// Report is how a schedule went.
type Report[O any] struct {
	Went
	*trace.Trace
	seed    uint64
	options O
}

// Main is the TestMain of a world.
func Main(m *testing.M) {
	runtime.MemProfileRate = 0 // what is sampled depends on what was allocated before
	os.Exit(m.Run())
}

// Once runs the schedule of a seed in a bubble. With kept its trace has each step, to compare it with that of another run.
func (w World[O]) Once(t *testing.T, seed uint64, o O, kept bool) Report[O] {
	return w.once(t, seed, o, false, kept)
}

func (w World[O]) once(t *testing.T, seed uint64, o O, on, kept bool) Report[O] {
	runtime.GC()
	runtime.GC() // what pools keep lives through one
	cryptotest.SetGlobalRandom(t, seed)
	r := Report[O]{Trace: &trace.Trace{On: on, Live: *live, Keep: kept || *sums}, seed: seed, options: o}
	synctest.Test(t, func(*testing.T) {
		pinned.Seed(seed)
		r.Went = w.Run(o, r.Trace)
	})
	return r
}

// All runs the seeds that the flags ask for.
func (w World[O]) All(t *testing.T) {
	require.NoError(t, w.Aims(*aim))
	n, steps, done, failed := 0, 0, 0, 0
	began, wrong := time.Now(), map[string]int{}
	for seed := *first; n < *many && time.Since(began) < *within && failed < 3; seed += *every {
		fmt.Printf("seed %d begins\n", seed)
		r := w.once(t, seed, w.Aimed(w.Draw(seed), *aim), *traced, false)
		n, steps, done = n+1, steps+r.Steps, done+r.Done
		for kind, times := range r.Wrong {
			wrong[kind] += times
		}
		if *traced {
			r.show()
		}
		for i, step := range r.Taken {
			fmt.Printf("seed %d step %d: %s\n", seed, i+1, step)
		}
		if len(r.Failures) == 0 {
			continue
		}
		failed++
		fmt.Printf("seed %d: %d steps, %d %s, sum %x, %v\n", seed, r.Steps, r.Done, w.Does, r.Sum, r.Failures)
		if *alone {
			break
		}
		if !*traced {
			w.once(t, seed, w.shrink(t, r), true, false).show()
		}
	}
	took := time.Since(began).Seconds()
	fmt.Println("what went wrong:", strings.TrimPrefix(fmt.Sprint(wrong), "map"))
	fmt.Printf("%d seeds from %d, %d steps, %d %s in %.1f s: %.0f steps/s, %.0f %s/s; %d failed\n", n, *first, steps, done, w.Does, took, float64(steps)/took, float64(done)/took, w.Does, failed)
	require.Zero(t, failed)
}

// Repeats runs the same seeds twice: all steps are equal, and the sums of different seeds are not.
func (w World[O]) Repeats(t *testing.T) {
	if !pinned.Pinned {
		t.Skip("the runtime is not held still; cmd/simulate builds a program where it is")
	}
	first, sums := map[uint64]Report[O]{}, map[uint64]bool{}
	for seed := uint64(1); seed <= 10; seed++ {
		first[seed] = w.Once(t, seed, w.Draw(seed), true)
		sums[first[seed].Sum] = true
	}
	require.Len(t, sums, len(first))
	for seed := uint64(1); seed <= 10; seed++ {
		again, before := w.Once(t, seed, w.Draw(seed), true).Taken, first[seed].Taken
		n := 0
		for n < min(len(again), len(before)) && again[n] == before[n] {
			n++
		}
		require.Equal(t, before[n:min(n+5, len(before))], again[n:min(n+5, len(again))], "seed %d from its step %d on", seed, n+1)
	}
}

// show prints the end of a trace; all of it with -trace.
func (r Report[O]) show() {
	lines := r.Lines
	if !*traced && len(lines) > shown {
		lines = lines[len(lines)-shown:]
	}
	for _, l := range lines {
		fmt.Println(l)
	}
	fmt.Printf("seed %d with %+v: %d steps, sum %x, %v\n", r.seed, r.options, r.Steps, r.Sum, r.Failures)
}

// shrinking is how long a schedule is made shorter: each try is a whole run, and one of a failure to come to rest takes long.
const shrinking = 2 * time.Minute

// shrink takes away from a schedule what its failure does not need.
func (w World[O]) shrink(t *testing.T, r Report[O]) O {
	o, invariant := r.options, r.Failures[0].Invariant
	until := time.Now().Add(shrinking)
	for again := true; again; {
		again = false
		for _, c := range w.Smaller(o) {
			if time.Now().After(until) {
				return o
			}
			if s := w.once(t, r.seed, c, false, false); len(s.Failures) > 0 && s.Failures[0].Invariant == invariant {
				o, again = c, true
				break
			}
		}
	}
	return o
}
