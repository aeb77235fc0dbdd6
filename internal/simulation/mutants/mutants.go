// Package mutants shows that each guard of the program is missed when it is not there: each [Mutant] takes one out, by a patch of its text that only the build of that mutant sees. The
// simulation has to fail on it within a budget of seeds, or, where no schedule of the simulation shows that the guard is gone, a test of the program that the mutant names.
package mutants

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/simulation/overlay"
)

// Mutant is a program without one of its guards.
type Mutant struct {
	Name    string
	Out     string          // what is taken out
	Seeds   int             // within how many the simulation has to find it; 0 is 400
	Quick   bool            // it is also run in `make test`
	By      string          // the invariant of the simulation that finds it, or "panic" where the program ends; empty where Test does. What another one finds does not count, nor what the program with its guard shows in the same seed
	Of      string          // the simulation that finds it: see overlay.Build
	Aim     string          // what goes wrong in its seeds, instead of what they draw: see schedule.Aimed; empty for that
	Test    string          // the package and the test that find it, such as "./kv TestX"
	Why     string          // with Test: why the simulation does not show that the guard is gone
	Patches []overlay.Patch // more than one where either of two guards is enough, so that only a program without both goes wrong
}

// seedOf is a seed that has failed, and by which invariant; begun is one that has begun.
var (
	seedOf = regexp.MustCompile(`(?m)^seed (\d+):.*\[\{(\S+)`)
	begun  = regexp.MustCompile(`(?m)^seed (\d+) begins$`)
)

const (
	within = 5 * time.Minute // all seeds of a mutant
	hangs  = time.Minute     // after that: a seed does not end
)

// Run builds and runs mutants: all, the quick ones, or that of a name. It fails when one is not found by what it names.
func Run(b overlay.Build, which string, out io.Writer) error {
	found, wrong := 0, 0
	for _, m := range All {
		if which != "all" && which != m.Name && !(which == "quick" && m.Quick) {
			continue
		}
		began := time.Now()
		how, err := m.run(b)
		took := time.Since(began).Round(time.Second / 10)
		switch {
		case err != nil:
			wrong++
			fmt.Fprintf(out, "ERROR  %-24s %v\n", m.Name, err)
		case how == "":
			wrong++
			fmt.Fprintf(out, "MISSED %-24s %s: %s\n", m.Name, took, m.Out)
		default:
			found++
			fmt.Fprintf(out, "found  %-24s %s, %s: %s\n", m.Name, how, took, m.Out)
		}
	}
	fmt.Fprintf(out, "%d mutants found, %d not\n", found, wrong)
	if found+wrong == 0 {
		return fmt.Errorf("there is no mutant %q", which)
	}
	if wrong > 0 {
		return errors.New("guards can be taken out, and nothing shows it")
	}
	return nil
}

// run returns how a mutant was found, or nothing.
func (m *Mutant) run(b overlay.Build) (string, error) {
	if m.Test != "" {
		return m.test(b)
	}
	b.Of = m.Of
	plain, err := b.Program("plain")
	if err != nil {
		return "", err
	}
	program, err := b.Program("mutant", m.Patches...)
	if err != nil {
		return "", err
	}
	until, others := time.Now().Add(within), ""
	for from, end := uint64(1), uint64(cmp.Or(m.Seeds, 400)); from <= end && time.Now().Before(until); {
		seed, by, err := m.first(program, from, end-from+1, time.Until(until))
		if err != nil || seed == 0 {
			return "", wrap(err, others)
		}
		from = seed + 1
		if by != m.By {
			others += fmt.Sprintf("; %s in seed %d", by, seed)
			continue
		}
		if clean, _, err := m.first(plain, seed, 1, within); err != nil {
			return "", err
		} else if clean != 0 { // whatever it is, it does not come of what was taken out
			others += fmt.Sprintf("; %s in seed %d, also with the guard", by, seed)
			continue
		}
		return fmt.Sprintf("seed %d, %s", seed, by), nil
	}
	return "", wrap(nil, others)
}

// first is the first seed that fails, and by which invariant; 0 is none. A program that ends in the midst of a seed has failed by "panic".
func (m *Mutant) first(program string, from, seeds uint64, most time.Duration) (seed uint64, by string, err error) {
	var text output
	c := overlay.Command(program, &text, "-seed", fmt.Sprint(from), "-seeds", fmt.Sprint(seeds), "-aim", m.Aim, "-first", "-within", most.String())
	var exit *exec.ExitError
	switch ended := overlay.Within(c, most+hangs); {
	case ended == nil:
		return 0, "", nil
	case !errors.As(ended, &exit): // one that does not end is no way to find it
		return 0, "", ended
	}
	if f := seedOf.FindStringSubmatch(string(text)); f != nil {
		seed, err = strconv.ParseUint(f[1], 10, 64)
		return seed, f[2], err
	}
	all := begun.FindAllStringSubmatch(string(text), -1)
	if len(all) == 0 {
		return 0, "", fmt.Errorf("the program does not run: %s", text)
	}
	seed, err = strconv.ParseUint(all[len(all)-1][1], 10, 64)
	return seed, "panic", err
}

// wrap adds what was found that does not count.
func wrap(err error, others string) error {
	if others == "" || err != nil {
		return err
	}
	return errors.New("found only by what its entry does not name" + others)
}

// test runs the test of a mutant, which passes with the guard. What does not build has not failed, nor what was ended by its time limit.
func (m *Mutant) test(b overlay.Build) (string, error) {
	pkg, name, _ := strings.Cut(m.Test, " ")
	if text, err := b.Test("guarded", pkg, "^"+name+"$"); err != nil {
		return "", fmt.Errorf("the test fails also with the guard: %w\n%s", err, text)
	}
	text, err := b.Test("mutant", pkg, "^"+name+"$", m.Patches...)
	var exit *exec.ExitError
	switch {
	case err == nil && strings.Contains(text, "[no tests to run]"):
		return "", fmt.Errorf("there is no test %s in %s", name, pkg)
	case err == nil:
		return "", nil
	case strings.Contains(text, "panic: test timed out"), !errors.As(err, &exit) || !strings.Contains(text, "--- FAIL: ") && !strings.Contains(text, "panic: "):
		return "", fmt.Errorf("%w\n%s", err, text)
	}
	return m.Test, nil
}

type output []byte

func (o *output) Write(b []byte) (int, error) {
	*o = append(*o, b...)
	return len(b), nil
}
