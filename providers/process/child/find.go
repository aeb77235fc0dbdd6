//go:build linux

package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Variables of the environment by which processes are found.
const (
	OwnerVar = "INSTAR_OWNER"   // tells the processes of one program's directory from all others
	markVar  = "INSTAR_PROCESS" // tells what one process has started from what others have
)

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

// seen is a process of this machine, as its environment shows it.
type seen struct {
	pid, group int
	owner      string
	mark       string
}

// each calls do with what can be seen of every other process, and with a descriptor that is of no other one. Those of other users cannot be seen, and so are not ours.
func each(deadline time.Time, do func(s seen, pidfd int)) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
		if err != nil { // it has ended, or is a thread
			continue
		}
		env, err := environOf(pid, deadline) // after the descriptor was opened: both are of one process
		group, gone := unix.Getpgid(pid)
		if err == nil && gone == nil {
			do(seen{pid: pid, group: group, owner: valueOf(env, OwnerVar), mark: valueOf(env, markVar)}, fd)
		}
		_ = unix.Close(fd) // of a descriptor of our own: nothing can follow from an error
	}
	return err
}

// valueOf is the value of a variable in an environment; empty where it is not there.
func valueOf(env []byte, name string) string {
	_, after, found := bytes.Cut(append([]byte{0}, env...), []byte("\x00"+name+"="))
	if !found {
		return ""
	}
	value, _, _ := bytes.Cut(after, []byte{0})
	return string(value)
}

// EndStrays kills the processes of an owner that none of the known ones are or have started, and returns which: their own has ended, or the
// control plane died between starting one and writing that down.
func EndStrays(owner string, known []*Process) (ended []int, err error) {
	groups, marks := map[int]bool{}, map[string]bool{}
	for _, p := range known {
		groups[p.PID], marks[p.Mark] = true, true
	}
	// One deadline for all together: whatever let go of the lock before now is executed by then.
	err = each(time.Now().Add(time.Second), func(s seen, pidfd int) {
		if s.owner == owner && !groups[s.group] && (s.mark == "" || !marks[s.mark]) && unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) == nil {
			ended = append(ended, s.pid)
		}
	})
	return ended, err
}

// moment is for how long one that is just being executed is waited for, and patience for how long one that was killed is.
const moment, patience = 50 * time.Millisecond, 5 * time.Second

// endRest kills what has the mark of a process that has ended: what it started in sessions and groups of their own. What is killed may have
// started more just before, so it looks until it finds nothing. What the kernel does not end within patience is told.
func (p *Process) endRest() error {
	for left, end := p.Mark != "", time.Now().Add(patience); left; time.Sleep(time.Millisecond) {
		left = false
		err := each(time.Now().Add(moment), func(s seen, pidfd int) {
			left = s.mark == p.Mark && unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) == nil || left
		})
		if err == nil && left && time.Now().After(end) {
			err = errors.New("the kernel does not end it")
		}
		if err != nil {
			return fmt.Errorf("something that process %d has started may be left: %w", p.PID, err)
		}
	}
	return nil
}
