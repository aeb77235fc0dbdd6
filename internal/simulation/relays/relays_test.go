package relays

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

var (
	flagSeed   = flag.Uint64("seed", 1, "the first seed")
	flagSeeds  = flag.Int("seeds", 1<<40, "how many seeds")
	flagEvery  = flag.Uint64("every", 1, "one in so many seeds")
	flagWithin = flag.Duration("within", time.Hour, "how long")
	flagTrace  = flag.Bool("trace", false, "show every step")
	flagLive   = flag.Bool("live", false, "show every step at once")
	flagAim    = flag.String("aim", "", "what goes wrong instead of what is drawn: kind, or kind@moment (Aimed)")
	flagFirst  = flag.Bool("first", false, "end with the first seed that fails, and do not make it short")
)

func TestMain(m *testing.M) {
	runtime.MemProfileRate = 0 // what is sampled depends on what was allocated before
	os.Exit(m.Run())
}

type report struct {
	o        Options
	steps    int
	events   int
	sum      uint64
	failures []Failure
	wrong    map[string]int
	lines    []string
}

func run(t *testing.T, o Options, traced bool) (r report) {
	cryptotest.SetGlobalRandom(t, o.Seed)
	tr := &trace.Trace{On: traced, Live: *flagLive}
	synctest.Test(t, func(*testing.T) {
		pinned.Seed(o.Seed)
		w := newWorld(o, tr)
		w.run()
		r.failures, r.events, r.wrong = w.failures, len(w.seen), w.wrong
	})
	r.o, r.steps, r.sum, r.lines = o, tr.Steps, tr.Sum, tr.Lines
	return r
}

// TestSeeds runs seeds. Without the runtime held still it runs one, in which nothing goes wrong: the parts fit together, and the race detector sees them.
func TestSeeds(t *testing.T) {
	if !pinned.Pinned {
		o := Draw(1)
		o.Faults = nil
		r := run(t, o, false)
		require.Empty(t, r.failures)
		require.Positive(t, r.events)
		return
	}
	seeds, steps, events, failed := 0, 0, 0, 0
	began, wrong := time.Now(), map[string]int{}
	for seed := *flagSeed; seeds < *flagSeeds && time.Since(began) < *flagWithin && failed < 3; seed += *flagEvery {
		fmt.Printf("seed %d begins\n", seed)
		r := run(t, Draw(seed).Aimed(*flagAim), *flagTrace)
		seeds, steps, events = seeds+1, steps+r.steps, events+r.events
		for kind, n := range r.wrong {
			wrong[kind] += n
		}
		if *flagTrace {
			show(r)
		}
		if len(r.failures) > 0 {
			failed++
			fmt.Printf("seed %d: %d steps, %d events, sum %x, %v\n", seed, r.steps, r.events, r.sum, r.failures)
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
	fmt.Printf("%d seeds from %d, %d steps, %d events in %.1f s; %d failed\n", seeds, *flagSeed, steps, events, took, failed)
	require.Zero(t, failed)
}

func show(r report) {
	lines := r.lines
	if !*flagTrace && len(lines) > 300 {
		lines = lines[len(lines)-300:]
	}
	for _, l := range lines {
		fmt.Println(l)
	}
	fmt.Printf("seed %d with %+v: %d steps, sum %x, %v\n", r.o.Seed, r.o, r.steps, r.sum, r.failures)
}

func shrink(t *testing.T, r report) Options {
	o, invariant := r.o, r.failures[0].Invariant
	for again := true; again; {
		again = false
		for _, c := range o.Smaller() {
			if s := run(t, c, false); len(s.failures) > 0 && s.failures[0].Invariant == invariant {
				o, again = c, true
				break
			}
		}
	}
	return o
}
