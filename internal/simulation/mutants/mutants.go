// Package mutants shows that the simulation finds what it is there to find: each [Mutant] takes one guard of the program out, by a patch of its text that only the build of that
// mutant sees, and the simulation has to fail on it within a budget of seeds.
package mutants

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/bcc94042/instar/internal/simulation/overlay"
)

// Mutant is a program without one of its guards.
type Mutant struct {
	Name   string
	Out    string // what is taken out
	Seeds  int    // within how many the simulation has to find it; 0 is 400
	Quick  bool   // it is also run in `make test`
	By     string // the invariant that has found it; empty where that is not known yet
	Misses string // why the simulation does not find it; empty where it must
	overlay.Patch
}

var seedOf = regexp.MustCompile(`(?m)^seed (\d+):.*\[\{(\S+)`)

// Run builds and runs mutants: all, the quick ones, or that of a name. It fails when one is not found that has to be.
func Run(b overlay.Build, which string, out io.Writer) error {
	found, missed, wrong := 0, 0, 0
	for _, m := range All {
		if which != "all" && which != m.Name && !(which == "quick" && m.Quick) {
			continue
		}
		began := time.Now()
		how, err := run(b, m)
		switch {
		case err != nil:
			wrong++
			fmt.Fprintf(out, "ERROR  %-24s %v\n", m.Name, err)
		case how != "":
			found++
			fmt.Fprintf(out, "found  %-24s %s, %s: %s\n", m.Name, how, time.Since(began).Round(time.Second/10), m.Out)
		case m.Misses != "":
			missed++
			fmt.Fprintf(out, "missed %-24s as it must be (%s): %s\n", m.Name, m.Misses, m.Out)
		default:
			wrong++
			fmt.Fprintf(out, "MISSED %-24s %s: %s\n", m.Name, time.Since(began).Round(time.Second/10), m.Out)
		}
	}
	fmt.Fprintf(out, "%d mutants found, %d known to be missed, %d wrong\n", found, missed, wrong)
	if wrong > 0 {
		return errors.New("mutants that have to be found are not")
	}
	return nil
}

// run returns how a mutant was found, or nothing.
func run(b overlay.Build, m Mutant) (string, error) {
	program, err := b.Program("mutant", m.Patch)
	if err != nil {
		return "", err
	}
	seeds := m.Seeds
	if seeds == 0 {
		seeds = 400
	}
	var text output
	err = overlay.Command(program, &text, "-seed", "1", "-seeds", fmt.Sprint(seeds), "-first", "-within", "45s").Run()
	if err == nil {
		return "", nil
	}
	if f := seedOf.FindStringSubmatch(string(text)); f != nil {
		return fmt.Sprintf("seed %s, %s", f[1], f[2]), nil
	}
	return "the program broke: " + firstLine(string(text)), nil
}

type output []byte

func (o *output) Write(b []byte) (int, error) {
	*o = append(*o, b...)
	return len(b), nil
}

func firstLine(s string) string {
	for i := range len(s) {
		if s[i] == '\n' {
			return s[:i]
		}
	}
	return s
}
