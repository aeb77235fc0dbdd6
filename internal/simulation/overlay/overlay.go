// Package overlay builds programs in which the Go runtime is held still. [Write] makes copies of a few files of the Go that is in use, with the [Patch]es of this package
// and those of the caller in them, and the file for `go build -overlay` that puts them in the place of the originals. Neither the Go installation nor the sources change.
package overlay

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Patch replaces a text that occurs exactly once in a file.
type Patch struct {
	File     string // below the module, or below the sources of Go when it begins with "$GOROOT/"
	Old, New string
}

// ErrNotThere says that a text that should be replaced is not in its file, or more than once: the file has changed since the patch was written.
var ErrNotThere = errors.New("the text to replace is not there once")

//go:embed *.txt
var replacements embed.FS

// pins hold the runtime still, as of Go 1.26. What is drawn must not depend on what the process has done before: caches that are filled at their first use make maps, and
// the caches of type assertions are filled at random. So all maps of a run get the same number, and selects, timers and math/rand draw from streams of their own.
var pins = []Patch{
	// The seed of everything that is drawn outside of bubbles, such as those of hashes.
	{"$GOROOT/runtime/rand.go", "\tglobalRand.state.Init(*seed)\n\tclear(seed[:])\n", "\tclear(seed[:])\n\tseed[0] = 1\n\tglobalRand.state.Init(*seed)\n\tclear(seed[:])\n"},
	{"$GOROOT/runtime/rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n", "\tif simulated() {\n\t\treturn simulation.maps\n\t}\n\tmp := getg().m\n\tc := &mp.chacha8\n"},
	{"$GOROOT/runtime/select.go", "cheaprandn(uint32(norder + 1))", "simulatedCase(uint32(norder + 1))"},
	// The order of timers of one instant is drawn when they are made. It was drawn when one is waited for, and a select waits for its channels in the order of their addresses.
	{"$GOROOT/runtime/time.go", "t.rand = cheaprand()", "if t.rand == 0 {\n\t\t\t\tt.rand = simulatedTimer()\n\t\t\t}"},
	{"$GOROOT/runtime/time.go", "bubble := getg().bubble; bubble != nil {\n\t\tt.isFake = true\n", "bubble := getg().bubble; bubble != nil {\n\t\tt.isFake = true\n\t\tt.rand = simulatedTimer()\n"},
	{"$GOROOT/math/rand/rand.go", "//go:linkname runtime_rand runtime.rand", "//go:linkname runtime_rand runtime.simulatedRand"},
	{"$GOROOT/math/rand/v2/rand.go", "//go:linkname runtime_rand runtime.rand", "//go:linkname runtime_rand runtime.simulatedRand"},
	// No goroutine is interrupted because it has run, and none gets a lock because it has waited, for so many real milliseconds.
	{"$GOROOT/runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000 ", "const forcePreemptNS = 1 << 60 "},
	// Which goroutine is next does not depend on how often the process has chosen one before, in other seeds.
	{"$GOROOT/runtime/proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if pp.schedtick%61 == 0 && !sched.runq.empty() && !simulation.on {"},
	// The heap begins at the same address in each process.
	{"$GOROOT/runtime/malloc.go", "randomizeHeapBase = goexperiment.RandomizedHeapBase64 && ", "randomizeHeapBase = goexperiment.RandomizedHeapBase64 && false && "},
	{"$GOROOT/internal/sync/mutex.go", "starvationThresholdNs = 1e6", "starvationThresholdNs = 1 << 60"},
	// Stacks have addresses and numbers of goroutines, and are stored with dead letters.
	{"internal/panics/panics.go", "where, p, debug.Stack())\n}", "where, p, debug.Stack()[:0])\n}"},
	// The children of a context are canceled in the order in which they came, not in that of their addresses.
	{"$GOROOT/context/context.go", "children map[canceler]struct{}", "children map[canceler]int"},
	{"$GOROOT/context/context.go", "p.children = make(map[canceler]struct{})", "p.children = make(map[canceler]int)"},
	{"$GOROOT/context/context.go", "p.children[child] = struct{}{}", "childrenBorn++\n\t\t\tp.children[child] = childrenBorn"},
	{"$GOROOT/context/context.go", "for child := range c.children {", "for _, child := range inOrderOfBirth(c.children) {"},
	{
		"$GOROOT/context/context.go", "// removeChild removes a context from its parent.", "var childrenBorn int\n\nfunc inOrderOfBirth(children map[canceler]int) (all []canceler) {\n\tfor child, born := range children {\n\t\tat := len(all)\n\t\tfor all = append(all, child); at > 0 && children[all[at-1]] > born; at-- {\n\t\t\tall[at] = all[at-1]\n\t\t}\n\t\tall[at] = child\n\t}\n\treturn all\n}\n\n// removeChild removes a context from its parent.",
	},
	// The wall clock of a node, beside a clock that measures durations.
	{
		"$GOROOT/runtime/time.go", "\t\treturn sec, nsec, 0\n\t}\n\treturn time_now()",
		"\t\tif clock := (*int64)(getg().labels); clock != nil {\n\t\t\tat := bubble.now + *clock\n\t\t\treturn at / 1e9, int32(at % 1e9), bubble.now\n\t\t}\n\t\treturn sec, nsec, bubble.now\n\t}\n\treturn time_now()",
	},
	// A start takes each partition from its consumer, some ten steps for each of 32. With 4, entities also meet in one: a batch has several of them.
	{"streams/subjects.go", "const Partitions = 32", "const Partitions = 4"},
}

// files are replaced as a whole.
var files = map[string]string{
	"internal/simulation/pinned/pinned.go": "pinned.go.txt",
	"internal/boottime/boottime.go":        "boottime.go.txt",
}

// Write puts the patched files and overlay.json into dir, and returns the path of the latter. module is the root of the module, goroot that of Go.
func Write(dir, module, goroot string, patches ...Patch) (string, error) {
	texts, err := patched(module, goroot, append(append([]Patch{}, pins...), patches...))
	if err != nil {
		return "", err
	}
	hooks, err := replacements.ReadFile("runtime.go.txt")
	if err != nil {
		return "", err
	}
	texts[filepath.Join(goroot, "src", "runtime/rand.go")] += string(hooks)
	for at, name := range files {
		raw, err := replacements.ReadFile(name)
		if err != nil {
			return "", err
		}
		texts[filepath.Join(module, at)] = string(raw)
	}
	return write(dir, module, goroot, texts)
}

// patched are the texts of files with patches in them, by path.
func patched(module, goroot string, patches []Patch) (map[string]string, error) {
	texts := map[string]string{}
	for _, p := range patches {
		at := filepath.Join(module, p.File)
		if std, ok := strings.CutPrefix(p.File, "$GOROOT/"); ok {
			at = filepath.Join(goroot, "src", std)
		}
		text, ok := texts[at]
		if !ok {
			raw, err := os.ReadFile(at)
			if err != nil {
				return nil, err
			}
			text = string(raw)
		}
		if strings.Count(text, p.Old) != 1 {
			return nil, fmt.Errorf("%s: %w: %q", p.File, ErrNotThere, p.Old)
		}
		texts[at] = strings.Replace(text, p.Old, p.New, 1)
	}
	return texts, nil
}

func write(dir, module, goroot string, texts map[string]string) (string, error) {
	replace := map[string]string{}
	for at, text := range texts {
		copied := filepath.Join(dir, strings.NewReplacer("/", "_", "\\", "_").Replace(strings.TrimPrefix(strings.TrimPrefix(at, module), goroot)))
		if err := writeChanged(copied, text); err != nil {
			return "", err
		}
		replace[at] = copied
	}
	raw, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "  ")
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, writeChanged(list, string(raw))
}

// writeChanged leaves a file alone that is as it should be: Go looks at the times of files.
func writeChanged(path, text string) error {
	if raw, err := os.ReadFile(path); err == nil && string(raw) == text {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}
