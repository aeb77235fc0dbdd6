//go:build linux

package child

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/bcc94042/instar/providers/group"
)

// Process is one operating system process. Pid, start time and boot together are never used twice.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since boot, from /proc/<pid>/stat
	Boot  string `json:"boot"`
	Mark  string `json:"mark,omitempty"` // in its environment, and in that of all that it starts; none on what an earlier version started

	pidfd int
	own   bool // a child of this very control plane: its exit code can be known
	gone  chan struct{}
	exit  Exit // valid when gone is closed
}

// Exit is how a process ended.
type Exit struct {
	known  bool
	status syscall.WaitStatus
}

func (e Exit) String() string {
	switch {
	case !e.known:
		return "ended; its exit code is not known, because an earlier control plane had started it"
	case e.status.Signaled():
		return "ended by " + unix.SignalName(e.status.Signal())
	}
	return "exit code " + strconv.Itoa(e.status.ExitStatus())
}

// Command is what to start.
type Command struct {
	Args  []string // the first is the path of the program
	Env   []string
	Dir   string
	Files []int // descriptors 0, 1, 2, 3, …
}

// Start begins a process in a group of its own, with a mark of its own in its environment.
func Start(c Command) (*Process, error) {
	fds := make([]uintptr, len(c.Files))
	for i, fd := range c.Files {
		fds[i] = uintptr(fd)
	}
	mark := uuid.NewString()
	runtime.LockOSThread() // the threads of a program have capabilities each of its own
	defer runtime.UnlockOSThread()
	if err := group.Unprivileged(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.Args[0], err)
	}
	pid, _, err := syscall.StartProcess(c.Args[0], c.Args, &syscall.ProcAttr{ // #nosec G204 -- the command of a template of the configuration
		Dir: c.Dir, Env: append(slices.Clip(c.Env), markVar+"="+mark), Files: fds, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.Args[0], err)
	}
	p := &Process{PID: pid, Mark: mark, own: true, gone: make(chan struct{})}
	// The pid is ours until it is waited for, so none of this can meet another process.
	if p.pidfd, err = unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK); err == nil {
		p.Start, _, err = statOf(pid)
	}
	if err == nil {
		p.Boot, err = bootID()
	}
	if err != nil {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return nil, fmt.Errorf("cannot follow process %d: %w", pid, err)
	}
	return p, nil
}

// Adopt takes up a process that an earlier control plane started, if it still runs and is the same one.
func (p *Process) Adopt() bool {
	boot, err := bootID()
	if err != nil || p.PID <= 1 || p.Boot != boot {
		return false
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	start, state, err := statOf(p.PID) // after the pidfd was opened: both are of one process
	if err != nil || start != p.Start || state == 'Z' || state == 'X' {
		_ = unix.Close(fd)
		return false
	}
	p.pidfd, p.gone = fd, make(chan struct{})
	return true
}

// Own reports whether this program has started the process, and not an earlier one.
func (p *Process) Own() bool { return p.own }

// Gone is closed when the process has ended, and nothing of it is left.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Exit is how it ended; not before Gone is closed.
func (p *Process) Exit() Exit { return p.exit }

// Descriptor takes a copy of a descriptor of the process, by pidfd_getfd(2).
func (p *Process) Descriptor(fd int) (int, error) {
	got, err := unix.PidfdGetfd(p.pidfd, fd, 0)
	if err != nil {
		return -1, os.NewSyscallError("pidfd_getfd", err)
	}
	unix.CloseOnExec(got)
	return got, nil
}

// Watch closes Gone when the process has ended, and kills what it left: in its group, and elsewhere with its mark. It returns early, with the
// process running on, when stop is closed; it must be called once for each process.
func (p *Process) Watch(stop <-chan struct{}) error {
	f := os.NewFile(uintptr(p.pidfd), "pidfd") // owns the descriptor from now on
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-stop:
			_ = f.SetReadDeadline(time.Unix(1, 0)) // fails only when f is closed, and then the wait is over
		case <-finished:
		}
	}()
	err = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n == 1
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot wait for process %d: %w", p.PID, err)
	}
	_ = syscall.Kill(-p.PID, syscall.SIGKILL) // nobody is left, mostly
	err = p.endRest()
	if p.own {
		if _, err := syscall.Wait4(p.PID, &p.exit.status, 0, nil); err == nil {
			p.exit.known = true
		}
	}
	close(p.gone)
	return err
}

// Signal reaches the whole group. A process that has ended is not an error.
func (p *Process) Signal(sig syscall.Signal) {
	select {
	case <-p.gone:
	default:
		_ = syscall.Kill(-p.PID, sig)
	}
}
