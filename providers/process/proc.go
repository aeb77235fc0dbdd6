//go:build linux

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors in the processes.
const (
	publicFD = 3
	ownerVar = "INSTAR_OWNER" // tells the processes of one gateway's directory from all others
)

// process is one operating system process. Pid, start time and boot together are never used twice.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since boot, from /proc/<pid>/stat
	Boot  string `json:"boot"`

	pidfd int
	own   bool // a child of this very control plane: its exit code can be known
	gone  chan struct{}
	exit  exit // valid when gone is closed
}

// exit is how a process ended.
type exit struct {
	known  bool
	status syscall.WaitStatus
}

func (e exit) String() string {
	switch {
	case !e.known:
		return "ended; its exit code is not known, because an earlier control plane had started it"
	case e.status.Signaled():
		return "ended by " + unix.SignalName(e.status.Signal())
	}
	return "exit code " + strconv.Itoa(e.status.ExitStatus())
}

// command is what to start.
type command struct {
	argv  []string
	env   []string
	dir   string
	files []int // descriptors 0, 1, 2, 3, …
}

// start begins a process in a group of its own.
func start(c command) (*process, error) {
	fds := make([]uintptr, len(c.files))
	for i, fd := range c.files {
		fds[i] = uintptr(fd)
	}
	pid, _, err := syscall.StartProcess(c.argv[0], c.argv, &syscall.ProcAttr{ // #nosec G204 -- the command of a template of the configuration
		Dir: c.dir, Env: c.env, Files: fds, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.argv[0], err)
	}
	p := &process{PID: pid, own: true, gone: make(chan struct{})}
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

// adopt takes up a process that an earlier control plane started, if it still runs and is the same one.
func (p *process) adopt() bool {
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

// watch closes gone when the process has ended, and kills what it left in its group. It returns early, with the
// process running on, when stop is closed; it must be called once for each process.
func (p *process) watch(stop <-chan struct{}) error {
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
	if p.own {
		if _, err := syscall.Wait4(p.PID, &p.exit.status, 0, nil); err == nil {
			p.exit.known = true
		}
	}
	close(p.gone)
	return nil
}

// signal reaches the whole group. A process that has ended is not an error.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.gone:
	default:
		_ = syscall.Kill(-p.PID, sig)
	}
}

// statOf reads start time and state of a process. The command in parentheses may contain anything.
func statOf(pid int) (start uint64, state byte, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("cannot read the stat of process %d", pid)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64) // field 22, counted from 1 and with pid and command
	return start, fields[0][0], err
}

// environOf reads the environment of a process. A process that is just being executed has none for an instant, after
// it has let go of its parent's descriptors and so of the directory's lock: that instant is waited out until
// the deadline. Only leaders of a group are waited for, because start makes each process one.
func environOf(pid int, deadline time.Time) ([]byte, error) {
	for ; ; time.Sleep(time.Millisecond) {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || len(env) > 0 || time.Now().After(deadline) {
			return env, err
		}
		group, err := unix.Getpgid(pid)
		if _, state, gone := statOf(pid); err != nil || group != pid || gone != nil || state == 'Z' || state == 'X' {
			return nil, err // a thread of the kernel, for one, has neither a group nor an environment
		}
	}
}

func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw)), err
}

// strays are processes of this owner that no state file knows: the control plane died between starting one and
// writing that down.
func strays(owner string, known map[int]bool) ([]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	deadline := time.Now().Add(time.Second) // for all together: whatever let go of the lock before now is executed by then
	var found []int
	mark := []byte("\x00" + ownerVar + "=" + owner + "\x00")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || known[pid] || pid == os.Getpid() {
			continue
		}
		env, err := environOf(pid, deadline)
		if err != nil { // ended, or of another user and so not ours
			continue
		}
		if group, err := unix.Getpgid(pid); err == nil && !known[group] && bytes.Contains(append([]byte{0}, env...), mark) {
			found = append(found, pid)
		}
	}
	return found, err
}
