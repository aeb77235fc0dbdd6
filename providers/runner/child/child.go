// Package child runs what handles data of strangers in a process of its own: this program, started again. What a repository does to a parser, by memory, by
// time or by a defect, ends that process and fails one attempt; the server goes on.
//
// [Do] is called from an init function with the work, and takes the process over where it is the one that was started for it. [Command.Run] starts it. What goes in and what comes
// out is JSON.
//
// The contract:
//   - The process has a group of its own, which ends with it; it ends with this process, with the context, and when its limits are reached.
//   - Limits are set before the work sees what it is given. They are rlimits, and where the kernel enforces no bound of memory (macOS), the collector of garbage keeps near it.
//   - It has no descriptor, no variable and no argument of this process besides those that [Command] names; PATH, TMPDIR, and whom this host trusts.
//   - An error is one of package providers, with the code and text that the work gave it: LimitExceeded when a limit ended it, Panicked when its code is broken,
//     Unavailable when somebody else killed it; or that of the context.
package child

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/group"
)

// Limits bound one process. A zero is its default; less than 0 is no limit.
type Limits struct {
	Memory int64         // bytes of private memory, besides what the program has when it starts; 1 GiB
	CPU    time.Duration // of processor time, in whole seconds; 10 min
	File   int64         // bytes of a file that is written; 1 GiB
	Files  int           // that are open; 256
}

// WithDefaults are the limits without zeros.
func (l Limits) WithDefaults() Limits {
	return Limits{Memory: cmp.Or(l.Memory, 1<<30), CPU: cmp.Or(l.CPU, 10*time.Minute), File: cmp.Or(l.File, 1<<30), Files: cmp.Or(l.Files, 256)}
}

// Command is one run of a work. Name is required.
type Command struct {
	Name   string // as it was given to [Do]
	Limits Limits
	Env    []string
	Out    io.Writer     // gets what the work, and what it starts, writes to both outputs; nil gets nothing
	Grace  time.Duration // between the end of the work's context and the end of the process; 0 is none, and the work's context never ends
}

// most is how long a result may be, and said how much of what a process says in the end is looked at.
const (
	most = 16 << 20
	said = 64 << 10
)

// request and answer are what both ends write.
type request struct {
	Limits Limits
	In     json.RawMessage
}

type answer struct {
	Out   json.RawMessage
	Error *providers.Error
}

// Run does the work with in, and decodes what it returns into out, a pointer.
func (c *Command) Run(ctx context.Context, in, out any) error {
	limits := c.Limits.WithDefaults()
	raw, err := json.Marshal(in)
	if err == nil {
		raw, err = json.Marshal(request{limits, raw})
	}
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", c.Name, err)
	}
	path, err := self()
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", c.Name, err)
	}
	results, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", c.Name, err)
	}
	defer func() { _ = results.Close() }() // only read
	got := make(chan []byte, 1)
	go func() {
		body, _ := io.ReadAll(io.LimitReader(results, most+1)) // what is not complete does not decode
		got <- body
	}()
	last := &head{}
	cmd := &group.Command{
		Path: path, Args: []string{argument(c.Name)}, Dir: os.TempDir(), Env: append(environment(), c.Env...), Stdin: bytes.NewReader(raw), Stderr: last, Extra: []*os.File{theirs}, Grace: c.Grace,
	}
	if c.Out != nil {
		cmd.Stdout = c.Out
		cmd.Stderr = c.Out
	}
	if c.Grace > 0 {
		cmd.Orphan = syscall.SIGTERM
	}
	err = cmd.Run(ctx)
	_ = theirs.Close() // so that the other end is at its end
	_ = results.SetReadDeadline(time.Now().Add(time.Second))
	body := <-got
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return c.reason(exit, limits, last.String())
	case err != nil:
		return providers.Errorf(providers.Unavailable, "%v", err)
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return providers.Errorf(providers.Panicked, "%s has answered with %d bytes that cannot be read", c.Name, len(body))
	}
	if a.Error != nil {
		return a.Error
	}
	return json.Unmarshal(a.Out, out)
}

// outOfMemory is what the runtime says when it gets no more: for the heap, for the stack of a thread, and (the last) for the race detector's own memory.
var outOfMemory = []string{"out of memory", "cannot allocate memory", "pthread_create failed", "failed to create new OS thread", "Sanitizer failed to allocate"}

// reason says why a process has ended without an answer.
func (c *Command) reason(exit *exec.ExitError, limits Limits, text string) error {
	used := exit.UserTime() + exit.SystemTime()
	status, _ := exit.Sys().(syscall.WaitStatus)
	switch {
	case slices.ContainsFunc(outOfMemory, func(s string) bool { return strings.Contains(text, s) }):
		return providers.Errorf(providers.LimitExceeded, "%s needs more than the %d MiB of memory that it may have", c.Name, limits.Memory>>20)
	case limits.CPU > 0 && used >= limits.CPU || status.Signaled() && status.Signal() == syscall.SIGXCPU || strings.Contains(text, "SIGXCPU"):
		return providers.Errorf(providers.LimitExceeded, "%s needs more than the %s of processor time that it may have", c.Name, limits.CPU)
	case status.Signaled():
		return providers.Errorf(providers.Unavailable, "%s was ended by a signal: %s", c.Name, status.Signal())
	}
	line, _, _ := strings.Cut(text, "\n")
	return providers.Errorf(providers.Panicked, "%s failed unexpectedly: %s", c.Name, cmp.Or(line, exit.String()))
}

// self is this program, also when its file was replaced.
func self() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// argument is what a process is told apart by, and what it shows in a list of processes.
func argument(name string) string { return "child-process:" + name }

// environment is what a process gets of this one's.
func environment() (env []string) {
	for _, name := range []string{"PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return append(env, "LANG=C.UTF-8", "GOTRACEBACK=single")
}

// head keeps the beginning of what is written, where the runtime says why it ends.
type head struct{ bytes.Buffer }

func (t *head) Write(p []byte) (int, error) {
	t.Buffer.Write(p[:min(len(p), max(said-t.Len(), 0))]) // never fails
	return len(p), nil
}

// ours reports whether this process was started for the work of that name.
func ours(name string) bool {
	return slices.Equal(os.Args[min(len(os.Args), 1):], []string{argument(name)})
}
