// Package program runs programs that the configuration names: a caller chooses one by its name, gives it arguments if that is allowed, and never says what
// file is run. There is no shell between. Each runs in a process group and a directory of its own, with a bare environment, rlimits and bounded output,
// and everything it started ends with it, and with this process. On Linux that holds for what has begun a session of its own, too; elsewhere such a process stays.
package program

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/group"
	"github.com/bcc94042/instar/providers/runner/child"
	"github.com/bcc94042/instar/providers/runner/usage"
)

// Program is an entry of the allow-list.
type Program struct {
	Path      string            `json:"path" yaml:"path"`           // absolute
	Args      []string          `json:"args" yaml:"args"`           // before those of the caller
	Arguments bool              `json:"arguments" yaml:"arguments"` // callers may give arguments
	Env       map[string]string `json:"env" yaml:"env"`             // besides PATH, HOME, TMPDIR and what the caller of Run sets

	Namespaces []string `json:"namespaces" yaml:"namespaces"` // whose tasks may run it; none is all
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
	Disk     usage.Of      // what a program may have in its directory, all files together; zeros are no bound
	As       *User         // whom programs run as, if this process is root's; nil is the user of this process
}

// Where is a run's surroundings.
type Where struct {
	Namespace string // whose task it is

	Dir string // its working directory, which is HOME and TMPDIR, too
	Env []string
	Out io.Writer // gets both outputs

	LeftOut func(bytes int64) // is told what Out has not got of them at the end; nil is not
}

const maxArgument = 4096

// Check says why a call of a namespace could never be run, or nil.
func (r *Runner) Check(namespace string, c *Call) error {
	p, ok := r.Programs[c.Program]
	switch {
	case !ok || len(p.Namespaces) > 0 && !slices.Contains(p.Namespaces, namespace): // that it is for others is theirs to know
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
	if err := r.Check(at.Namespace, c); err != nil {
		return err
	}
	p := r.Programs[c.Program]
	env := []string{"PATH=" + cmp.Or(os.Getenv("PATH"), "/usr/bin:/bin"), "HOME=" + at.Dir, "TMPDIR=" + at.Dir, "LANG=C.UTF-8"}
	for name, value := range p.Env {
		env = append(env, name+"="+value)
	}
	out := &capped{to: at.Out, left: cmp.Or(r.Output, 1<<20)}
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if r.Disk != (usage.Of{}) {
		defer usage.Watch(run, at.Dir, r.Disk, func() {
			stop(providers.Errorf(providers.LimitExceeded, "%s has written more than %d bytes, or more than %d files and folders", c.Program, r.Disk.Bytes, r.Disk.Entries))
		})()
	}
	grace := cmp.Or(r.Grace, 5*time.Second)
	none := child.Limits{Memory: -1, CPU: -1, File: -1, Files: -1} // those of the program are its own
	var end end
	err := (&child.Command{Name: childName, Limits: none, Out: out, Grace: grace + clearing}).Run(run, start{
		Path: p.Path, Args: slices.Concat(p.Args, c.Args), Dir: at.Dir, Env: append(env, at.Env...), Limits: r.Limits, Grace: grace, As: r.As,
	}, &end)
	if out.cut > 0 && at.LeftOut != nil {
		at.LeftOut(out.cut)
	}
	switch cause := context.Cause(run); {
	case ctx.Err() != nil:
		return ctx.Err()
	case cause != nil:
		return cause
	case err != nil:
		return err
	case end.Signal == syscall.SIGXCPU || end.Signal == syscall.SIGXFSZ:
		return providers.Errorf(providers.LimitExceeded, "%s was ended by a limit: %s", c.Program, end.Signal)
	case end.Signal != 0:
		return providers.Errorf(providers.Unavailable, "%s was ended by a signal: %s", c.Program, end.Signal)
	case end.Code == tempFail:
		return providers.Errorf(providers.Unavailable, "%s ended with exit code %d, which asks for another try", c.Program, tempFail)
	case end.Code != 0:
		return providers.Errorf(providers.Invalid, "%s ended with exit code %d", c.Program, end.Code)
	}
	return nil
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
