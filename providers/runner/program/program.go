// Package program runs programs that the configuration names: a caller chooses one by its name, gives it arguments if that is allowed, and never says what
// file is run. There is no shell between. Each runs in a process group and a directory of its own, with a bare environment, rlimits and bounded output,
// and everything it started ends with it.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/group"
)

// Program is an entry of the allow-list.
type Program struct {
	Path      string            `json:"path" yaml:"path"`           // absolute
	Args      []string          `json:"args" yaml:"args"`           // before those of the caller
	Arguments bool              `json:"arguments" yaml:"arguments"` // callers may give arguments
	Env       map[string]string `json:"env" yaml:"env"`             // besides PATH, HOME, TMPDIR and what the caller of Run sets
}

// Call chooses a program.
type Call struct {
	Program string   `json:"program" minLength:"1" maxLength:"63" doc:"Its name in the configuration"`
	Args    []string `json:"args,omitempty" maxItems:"100" doc:"If the configuration allows them"`
}

// Runner runs programs of its list. It may be used by many goroutines.
type Runner struct {
	Programs map[string]Program
	Limits   group.Limits  // of each process
	Grace    time.Duration // from SIGTERM to SIGKILL; 0 is 5 s
	Output   int64         // bytes of output that are passed on; 0 is 1 MiB
}

// Where is a run's surroundings.
type Where struct {
	Dir string // its working directory, which is HOME and TMPDIR, too
	Env []string
	Out io.Writer // gets both outputs
}

const maxArgument = 4096

// Check says why a call could never be run, or nil.
func (r *Runner) Check(c *Call) error {
	p, ok := r.Programs[c.Program]
	switch {
	case !ok:
		return providers.Errorf(providers.Invalid, "program %q is not in the configuration", c.Program)
	case !filepath.IsAbs(p.Path):
		return providers.Errorf(providers.Invalid, "the path of program %q is not absolute", c.Program)
	case len(c.Args) > 0 && !p.Arguments:
		return providers.Errorf(providers.Invalid, "program %q takes no arguments", c.Program)
	case slices.ContainsFunc(c.Args, func(a string) bool { return len(a) > maxArgument || strings.ContainsRune(a, 0) }):
		return providers.Errorf(providers.Invalid, "an argument has more than %d bytes, or a zero byte", maxArgument)
	}
	return nil
}

// Run runs it. Exit code 75 (EX_TEMPFAIL), and an end by a signal that nobody here sent, may be tried again; other failures may not.
func (r *Runner) Run(ctx context.Context, c *Call, at Where) error {
	if err := r.Check(c); err != nil {
		return err
	}
	p := r.Programs[c.Program]
	env := []string{"PATH=" + cmp.Or(os.Getenv("PATH"), "/usr/bin:/bin"), "HOME=" + at.Dir, "TMPDIR=" + at.Dir, "LANG=C.UTF-8"}
	for name, value := range p.Env {
		env = append(env, name+"="+value)
	}
	out := &capped{to: at.Out, left: cmp.Or(r.Output, 1<<20)}
	err := (&group.Command{
		Path: p.Path, Args: slices.Concat(p.Args, c.Args), Dir: at.Dir, Env: append(env, at.Env...), Stdout: out, Stderr: out, Limits: r.Limits, Grace: cmp.Or(r.Grace, 5*time.Second),
	}).Run(ctx)
	if out.cut > 0 && at.Out != nil {
		fmt.Fprintf(at.Out, "… %d more bytes of output were left out\n", out.cut)
	}
	var exit *exec.ExitError
	switch {
	case err == nil || ctx.Err() != nil:
		return cmp.Or(ctx.Err(), err)
	case !errors.As(err, &exit):
		return providers.Errorf(providers.Invalid, "%v", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		switch s := status.Signal(); s {
		case syscall.SIGXCPU, syscall.SIGXFSZ:
			return providers.Errorf(providers.Invalid, "%s was ended by a limit: %s", c.Program, s)
		default:
			return providers.Errorf(providers.Unavailable, "%s was ended by a signal: %s", c.Program, s)
		}
	}
	if exit.ExitCode() == tempFail {
		return providers.Errorf(providers.Unavailable, "%s ended with exit code %d, which asks for another try", c.Program, tempFail)
	}
	return providers.Errorf(providers.Invalid, "%s ended with exit code %d", c.Program, exit.ExitCode())
}

const tempFail = 75 // sysexits.h

// capped passes the beginning on, and counts the rest.
type capped struct {
	to   io.Writer
	left int64
	cut  int64
}

func (c *capped) Write(p []byte) (int, error) {
	pass := p[:min(int64(len(p)), c.left)]
	c.left -= int64(len(pass))
	c.cut += int64(len(p) - len(pass))
	if c.to != nil && len(pass) > 0 {
		if _, err := c.to.Write(pass); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
