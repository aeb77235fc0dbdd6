package group

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Adopt has this process become the parent of all processes below it whose own parent has ended, also of those in sessions of their own. It reports whether
// this system can do that.
func Adopt() (bool, error) {
	return true, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// NoNewPrivileges keeps what this thread starts from becoming another user by a program that would allow it, such as sudo.
func NoNewPrivileges() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

// Unprivileged has this thread pass no capability on: those that a service manager gives this program, such as for ports below 1024, are not for what it starts.
func Unprivileged() error {
	err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if errors.Is(err, unix.EINVAL) { // before Linux 4.3 none are passed on
		return nil
	}
	return os.NewSyscallError("prctl", err)
}

// EndAdopted kills all children of this process, and theirs, until there are none, or ctx ends. It reaps whatever ends meanwhile.
func EndAdopted(ctx context.Context) error {
	for ctx.Err() == nil {
		for _, pid := range children() {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.ECHILD) {
				return nil
			}
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		t := time.NewTimer(time.Millisecond) // for the kernel to end them
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	return ctx.Err()
}

// children are the ids of the processes whose parent this one is.
func children() (ids []int) {
	own, entries := strconv.Itoa(os.Getpid()), []os.DirEntry(nil)
	entries, _ = os.ReadDir("/proc") // without it nothing is found, and EndAdopted goes on until its time is over
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, _ := os.ReadFile("/proc/" + e.Name() + "/stat") // it may have ended
		_, after, _ := strings.Cut(string(raw[strings.LastIndexByte(string(raw), ')')+1:]), " ")
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == own {
			ids = append(ids, pid)
		}
	}
	return ids
}
