// Command simulate builds the simulation with the Go runtime held still (package overlay), and runs seeds of it in several processes at once. A seed that fails is run again, made
// short, and shown step by step. With -mutants it runs the gate of package mutants instead.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/simulation/mutants"
	"github.com/bcc94042/instar/internal/simulation/overlay"
)

func main() {
	seed := flag.Uint64("seed", 0, "run this seed only, and show it step by step")
	from := flag.Uint64("from", uint64(time.Now().Unix())*1000, "the first seed")
	seeds := flag.Int("seeds", 0, "how many seeds at most; 0 is as many as there is time for")
	within := flag.Duration("for", time.Minute, "how long")
	jobs := flag.Int("jobs", runtime.NumCPU(), "how many processes")
	gate := flag.String("mutants", "", "run the gate: all, quick, or the name of a mutant")
	aim := flag.String("aim", "", "what goes wrong instead of what is drawn, such as zombie@timer or restore (see schedule.Aimed)")
	of := flag.String("of", "", "which simulation: relays, of an outbox; empty is that of the engine")
	repeats := flag.Bool("repeats", false, "run some seeds in two processes, and see that they are the same in both")
	flag.Parse()
	if err := run(*of, *seed, *from, *seeds, *within, *jobs, *gate, *aim, *repeats); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

func run(of string, seed, from uint64, seeds int, within time.Duration, jobs int, gate, aim string, repeats bool) error {
	module, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "building the simulated program; the first time everything is compiled for a patched runtime, which takes minutes")
	build := overlay.Build{Module: module, Dir: filepath.Join(module, ".tools", "simulation"), Of: of}
	if gate != "" {
		return mutants.Run(build, gate, os.Stdout)
	}
	program, err := build.Program("plain")
	if errors.Is(err, overlay.ErrNotThere) {
		return fmt.Errorf("%w; without its patches (internal/simulation/overlay), which are for Go 1.26 and for the sources as they were, no seed repeats: this is %s", err, runtime.Version())
	}
	if err != nil {
		return err
	}
	if repeats {
		return repeat(program)
	}
	if seed != 0 {
		return overlay.Command(program, os.Stdout, "-seed", fmt.Sprint(seed), "-seeds", "1", "-trace", "-live", "-aim", aim).Run()
	}
	fmt.Printf("seeds from %d\n", from)
	var all sync.WaitGroup
	failed := make([]error, jobs)
	outputs := make([]output, jobs)
	for i := range jobs {
		all.Go(func() {
			args := []string{"-seed", fmt.Sprint(from + uint64(i)), "-every", fmt.Sprint(jobs), "-within", within.String(), "-aim", aim}
			if seeds > 0 {
				args = append(args, "-seeds", fmt.Sprint((seeds+jobs-1)/jobs))
			}
			failed[i] = overlay.Within(overlay.Command(program, &outputs[i], args...), within+shortening)
		})
	}
	all.Wait()
	for i, err := range failed {
		if err != nil && !outputs[i].ended {
			fmt.Printf("the process ended during seed %s: %v\n", outputs[i].seed, err)
		}
	}
	var exit *exec.ExitError
	if err := errors.Join(failed...); errors.As(err, &exit) {
		again := "make simulate SEED=…"
		for _, with := range [][2]string{{"OF", of}, {"AIM", aim}} {
			if with[1] != "" {
				again += " " + with[0] + "=" + with[1]
			}
		}
		return errors.New("a seed has failed: " + again + " shows it step by step")
	} else if err != nil {
		return err
	}
	return nil
}

// shortening is how long a process may go on after its time: to end a seed, and to make up to three that have failed short.
const shortening = 10 * time.Minute

// output prints what a process says, line by line, but for which seed begins, which it remembers.
type output struct {
	rest  []byte
	seed  string // the last one that has begun
	ended bool   // the process has counted its seeds
}

func (o *output) Write(b []byte) (int, error) {
	o.rest = append(o.rest, b...)
	for {
		line, rest, ok := bytes.Cut(o.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		o.rest = rest
		if seed, ok := bytes.CutSuffix(line, []byte(" begins")); ok {
			o.seed = strings.TrimPrefix(string(seed), "seed ")
			continue
		}
		o.ended = o.ended || bytes.HasPrefix(line, []byte("what went wrong: "))
		fmt.Printf("%s\n", line)
	}
}

// repeat shows that a seed makes the same run, step by step: within a process (the tests that need the runtime held still), and in two processes of which one has run others before.
func repeat(program string) error {
	if err := overlay.Command(program, os.Stdout, "-test.run", "^Test(TheRuntimeIsHeldStill|ANodeHasAClockOfItsOwn|ASeedRepeats)$", "-test.v").Run(); err != nil {
		return err
	}
	const seeds, skipped = 30, 5
	var sums [2]strings.Builder
	for i, from := range []int{1, 1 + skipped} {
		if err := overlay.Command(program, &sums[i], "-seed", fmt.Sprint(from), "-seeds", fmt.Sprint(seeds+1-from), "-sums").Run(); err != nil {
			return fmt.Errorf("cannot run the seeds from %d: %w\n%s", from, err, sums[i].String())
		}
	}
	all, some := stepsOf(sums[0].String()), stepsOf(sums[1].String())
	for seed := uint64(1 + skipped); seed <= seeds; seed++ {
		first, second := all[seed], some[seed]
		if len(first) == 0 || len(second) == 0 {
			return fmt.Errorf("seed %d has not run in both processes", seed)
		}
		if slices.Equal(first, second) {
			continue
		}
		n := 0
		for n < min(len(first), len(second)) && first[n] == second[n] {
			n++
		}
		for _, side := range [][]string{first, second} {
			fmt.Println("one process:")
			for _, line := range side[max(n-5, 0):min(n+5, len(side))] {
				fmt.Print("  ", line)
			}
		}
		return fmt.Errorf("seed %d is not the same from its step %d on", seed, n+1)
	}
	fmt.Printf("%d seeds are the same in two processes\n", seeds-skipped)
	return nil
}

// stepsOf are the steps of each seed, as a program with -sums prints them.
func stepsOf(out string) map[uint64][]string {
	all := map[uint64][]string{}
	for line := range strings.Lines(out) {
		var seed, step uint64
		if n, _ := fmt.Sscanf(line, "seed %d step %d:", &seed, &step); n == 2 {
			all[seed] = append(all[seed], line)
		}
	}
	return all
}
