// Package group runs a program, without a shell, in a process group of its own, which ends with it: whatever it started and left behind is killed
// before [Command.Run] returns. When the context ends the group gets SIGTERM, and SIGKILL after the grace.
//
// What it may use is bounded by rlimits, which hold for each process of the group, not for all together; a host that has to bound the whole uses a
// service manager or containers. On Linux the program gets a signal when this process ends, however it does. A process that begins a session of its own leaves
// the group: who has to end such ones, too, calls [Adopt] and [EndAdopted] in a process that has no other children.
package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/bcc94042/instar/internal/pdeathsig"
)

// Limits bound each process of a group. A zero is no limit.
type Limits struct {
	CPU    time.Duration // of processor time, in whole seconds
	Memory int64         // bytes of address space; not on macOS, whose kernel does not enforce it
	Data   int64         // bytes of private memory that can be written, without files that are mapped; not on macOS
	File   int64         // bytes of a file that is written
	Files  int           // that are open
}

// Command is a program and how it is run.
type Command struct {
	Path   string // absolute
	Args   []string
	Dir    string
	Env    []string // all of it
	Stdin  io.Reader
	Stdout io.Writer // is written to by one goroutine at a time, also when it is that of Stderr
	Stderr io.Writer
	Extra  []*os.File // descriptors 3 and up; there are no others
	Limits Limits
	Grace  time.Duration       // between SIGTERM and SIGKILL; 0 kills at once
	As     *syscall.Credential // another user, which only root can set
	Orphan syscall.Signal      // what the program gets when this process has ended; 0 is SIGKILL
}

// Run runs it to its end. The error is that of the context when that has ended, [*exec.ExitError] when the program failed, and otherwise says why it could
// not be started.
func (c *Command) Run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, args := c.limited()
	cmd := exec.Command(path, args...) // #nosec G204 -- callers name programs of the configuration
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = c.Dir, c.Env, c.Stdin, c.Stdout, c.Stderr, c.Extra
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.As}
	pdeathsig.Set(cmd.SysProcAttr, cmp.Or(c.Orphan, syscall.SIGKILL))
	runtime.LockOSThread() // the signal comes when the thread ends that has started it
	defer runtime.UnlockOSThread()
	if err := Unprivileged(); err != nil {
		return fmt.Errorf("cannot start %s: %w", c.Path, err)
	}
	cmd.WaitDelay = 100 * time.Millisecond // a process that has left the group may hold its output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", c.Path, err)
	}
	group := -cmd.Process.Pid
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(ctx, group, ended)
	}()
	// Whatever it left behind ends before it is reaped: until then its id is nobody else's.
	awaitEnd(cmd.Process.Pid)
	close(ended)
	<-watched
	_ = syscall.Kill(group, syscall.SIGKILL) // it may be gone already
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return cmp.Or(ctx.Err(), err)
}

// watch ends the group when the context does.
func (c *Command) watch(ctx context.Context, group int, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	if c.Grace > 0 {
		_ = syscall.Kill(group, syscall.SIGTERM) // it may have ended
		grace := time.NewTimer(c.Grace)
		defer grace.Stop()
		select {
		case <-ended:
			return
		case <-grace.C:
		}
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
}

// limited is the program behind a shell that sets its limits and becomes it: no process runs without them, and no word of the program's is the shell's.
func (c *Command) limited() (path string, args []string) {
	script, l := "", c.Limits
	set := func(flag string, resource int, value int64) {
		if value <= 0 {
			return
		}
		script += "ulimit -" + flag + " " + strconv.FormatInt(atMost(resource, value, unit(flag)), 10) + " && "
	}
	set("t", syscall.RLIMIT_CPU, int64(l.CPU/time.Second))
	if memoryLimited {
		set("v", syscall.RLIMIT_AS, l.Memory/unit("v"))
		set("d", syscall.RLIMIT_DATA, l.Data/unit("d"))
	}
	set("f", syscall.RLIMIT_FSIZE, l.File/unit("f"))
	set("n", syscall.RLIMIT_NOFILE, int64(l.Files))
	if script == "" {
		return c.Path, c.Args
	}
	return "/bin/sh", append([]string{"-c", script + `ulimit -c 0 && exec "$@"`, "sh", c.Path}, c.Args...)
}

// unit is that of a flag of ulimit (POSIX for files; every shell for the others).
func unit(flag string) int64 {
	return map[string]int64{"v": 1024, "d": 1024, "f": 512}[flag] + map[bool]int64{true: 1}[flag == "t" || flag == "n"]
}

// atMost is a limit that this process may set: none above its own.
func atMost(resource int, value, unit int64) int64 {
	var own syscall.Rlimit
	if err := syscall.Getrlimit(resource, &own); err == nil && own.Max/uint64(unit) < uint64(value) {
		return int64(own.Max / uint64(unit))
	}
	return value
}
