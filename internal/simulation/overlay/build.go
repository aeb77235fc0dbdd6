package overlay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// GoRoot is where the sources of the Go in use are.
func GoRoot() (string, error) {
	root, _, err := goEnv()
	return root, err
}

// goEnv is where the Go in use is, and where modules are kept.
func goEnv() (root, modules string, err error) {
	out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return "", "", fmt.Errorf("cannot find the sources of Go: %w", err)
	}
	root, modules, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return root, modules, nil
}

// goRoot is the same, where it may be overlaid: a Go that the go command has downloaded lies among the modules, of which it lets nobody overlay anything. So it is copied, and this process uses the copy
// from then on.
func (b Build) goRoot() (string, error) {
	root, modules, err := goEnv()
	if err != nil || modules == "" || !strings.HasPrefix(root, modules+string(filepath.Separator)) {
		return root, err
	}
	to := filepath.Join(b.Dir, filepath.Base(root)) // with its version
	if err := copied(root, to); err != nil {
		return "", fmt.Errorf("cannot copy %s: %w", root, err)
	}
	path := filepath.Join(to, "bin") + string(filepath.ListSeparator) + os.Getenv("PATH")
	return to, errors.Join(os.Setenv("GOROOT", to), os.Setenv("GOTOOLCHAIN", "local"), os.Setenv("PATH", path))
}

// Build makes programs of the simulation.
type Build struct {
	Module string // the root of the sources
	Dir    string // where the programs go, and what they are made from
	Of     string // which simulation, a folder of internal/simulation; empty is that of the engine, which is in none
}

// Program builds the simulation under a name with patches, and returns its path. The build cache has what they do not touch.
func (b Build) Program(name string, patches ...Patch) (string, error) {
	root, err := b.goRoot()
	if err != nil {
		return "", err
	}
	mod, lib, err := b.library()
	if err != nil {
		return "", err
	}
	list, err := Write(filepath.Join(b.Dir, name), b.Module, root, append(patches, b.ordered(lib)...)...)
	if err != nil {
		return "", err
	}
	program := filepath.Join(b.Dir, name, "simulation"+b.Of+".test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-modfile", mod, "-overlay", list, "-o", program, "./"+path.Join("internal/simulation", b.Of))
	build.Dir = b.Module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the simulation: %w\n%s", err, out)
	}
	return program, nil
}

// Test runs tests of a package with patches of the module and of nothing else, as `go test` does. It returns what was printed, and an error that [errors.As] finds to be an
// [exec.ExitError] where the go command says that they failed, or that nothing could be built.
func (b Build) Test(name, pkg, tests string, patches ...Patch) (string, error) {
	texts, err := patched(b.Module, "", patches)
	if err != nil {
		return "", err
	}
	list, err := write(filepath.Join(b.Dir, name), b.Module, "", texts)
	if err != nil {
		return "", err
	}
	test := exec.Command("go", "test", "-vet=off", "-count=1", "-timeout", "3m", "-overlay", list, "-run", tests, pkg)
	test.Dir, test.Env = b.Module, append(os.Environ(), "CI=true") // one that skips itself for want of Postgres would pass
	out, err := test.CombinedOutput()
	return string(out), err
}

const natsgo = "github.com/nats-io/nats.go"

// library copies nats.go beside the programs, because the go command lets nobody overlay what is in its cache of modules, and returns the path of a go.mod that takes the copy, and of the copy.
func (b Build) library() (mod, to string, err error) {
	find := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", natsgo)
	find.Dir = b.Module
	out, err := find.Output()
	if err != nil {
		return "", "", fmt.Errorf("cannot find %s: %w", natsgo, err)
	}
	from := strings.TrimSpace(string(out))
	to = filepath.Join(b.Dir, filepath.Base(from)) // with its version
	if err := copied(from, to); err != nil {
		return "", "", fmt.Errorf("cannot copy %s: %w", natsgo, err)
	}
	mod = filepath.Join(b.Dir, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(b.Module, name))
		if err != nil {
			return "", "", err
		}
		if name == "go.mod" {
			text = fmt.Appendf(text, "\nreplace %s => %s\n", natsgo, to)
		}
		if err := writeChanged(filepath.Join(b.Dir, name), string(text)); err != nil {
			return "", "", err
		}
	}
	return mod, to, nil
}

// copied copies a directory that is not there, whole or not at all: who breaks a build off leaves none that looks as if it were whole.
func copied(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	beside, err := os.MkdirTemp(filepath.Dir(to), "copying-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(beside)
	half := filepath.Join(beside, "half")
	if err := os.CopyFS(half, os.DirFS(from)); err != nil {
		return err
	}
	return os.Rename(half, to)
}

// ordered patches the copy of nats.go: who listens to a connection is told in the order of registration, not in that of the addresses of channels.
func (b Build) ordered(lib string) []Patch {
	file, err := filepath.Rel(b.Module, filepath.Join(lib, "nats.go"))
	if err != nil {
		return nil
	}
	return []Patch{
		{file, "\tstatListeners map[Status]map[chan Status]struct{}\n", "\tstatListeners map[Status]map[chan Status]int\n\tstatOrder []chan Status\n"},
		{file, "make(map[Status]map[chan Status]struct{})", "make(map[Status]map[chan Status]int)"},
		{file, "nc.statListeners[status] = make(map[chan Status]struct{})", "nc.statListeners[status] = make(map[chan Status]int)"},
		{file, "\tnc.statListeners[status][ch] = struct{}{}\n", "\tnc.statListeners[status][ch] = 1\n\tnc.statOrder = append(nc.statOrder, ch)\n"},
		{file, "\tfor ch := range nc.statListeners[s] {\n", "\ttold := map[chan Status]bool{}\n\tfor _, ch := range nc.statOrder {\n\t\tif nc.statListeners[s][ch] == 0 || told[ch] {\n\t\t\tcontinue\n\t\t}\n\t\ttold[ch] = true\n"},
	}
}

// Command runs a program of the simulation, in which nothing is done by the clock of this machine: on one processor, and without collecting garbage in the midst of a run.
func Command(program string, out io.Writer, args ...string) *exec.Cmd {
	c := exec.Command(program, append([]string{"-test.run", "^TestSeeds$", "-test.timeout", "0"}, args...)...)
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMEMLIMIT=3GiB") // a seed that never ends shall not take the machine
	c.Stdout, c.Stderr = out, out
	return c
}

// ErrEndless says that a program of the simulation was killed, because a seed did not end: no clock runs in one in which somebody goes round in circles.
var ErrEndless = errors.New("a seed does not end")

// Within runs a [Command], and kills it where it does not end within a time.
func Within(c *exec.Cmd, most time.Duration) error {
	if err := c.Start(); err != nil {
		return err
	}
	kill := time.AfterFunc(most, func() { _ = c.Process.Kill() }) // fails only when it has ended
	err := c.Wait()
	if !kill.Stop() {
		return fmt.Errorf("%w within %s", ErrEndless, most)
	}
	return err
}
