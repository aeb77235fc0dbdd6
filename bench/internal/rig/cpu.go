package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Self is the CPU time of this process so far.
func Self() (time.Duration, error) {
	var r syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), err
}

// Family is the CPU time of a process with its children, such as Postgres: those that have ended are in the account of the process.
func Family(of int) (all time.Duration, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range stats {
		pid, parent, own, children, err := stat(path)
		switch {
		case err != nil: // it has gone meanwhile
		case pid == of:
			all += own + children
		case parent == of:
			all += own
		}
	}
	return all, nil
}

// stat reads one process's line: fields 4 and 14 to 17 of proc(5).
func stat(path string) (pid, parent int, own, children time.Duration, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	_, rest, ok := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 15 {
		return 0, 0, 0, 0, fmt.Errorf("%s is not as expected", path)
	}
	pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path)))
	if err != nil {
		return 0, 0, 0, 0, err
	}
	parent, _ = strconv.Atoi(f[1]) // numbers, all of them
	ticks := func(i int) time.Duration {
		n, _ := strconv.Atoi(f[i])
		return time.Duration(n) * 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go knows
	}
	return pid, parent, ticks(11) + ticks(12), ticks(13) + ticks(14), nil
}
