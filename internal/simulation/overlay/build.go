package overlay

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// GoRoot is where the sources of the Go in use are.
func GoRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the sources of Go: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Build makes programs of the simulation.
type Build struct {
	Module string // the root of the sources
	Dir    string // where the programs go, and what they are made from
}

// Program builds the simulation under a name with patches, and returns its path. The build cache has what they do not touch.
func (b Build) Program(name string, patches ...Patch) (string, error) {
	root, err := GoRoot()
	if err != nil {
		return "", err
	}
	list, err := Write(filepath.Join(b.Dir, name), b.Module, root, patches...)
	if err != nil {
		return "", err
	}
	program := filepath.Join(b.Dir, name, "simulation.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-o", program, "./internal/simulation")
	build.Dir = b.Module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the simulation: %w\n%s", err, out)
	}
	return program, nil
}

// Command runs a program of the simulation, in which nothing is done by the clock of this machine: on one processor, and without collecting garbage in the midst of a run.
func Command(program string, out io.Writer, args ...string) *exec.Cmd {
	c := exec.Command(program, append([]string{"-test.run", "^TestSeeds$", "-test.timeout", "0"}, args...)...)
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off")
	c.Stdout, c.Stderr = out, out
	return c
}
