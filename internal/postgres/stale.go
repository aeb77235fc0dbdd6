package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stranger is a server that this process has not started: nobody tells when it ends.
type stranger struct {
	process *os.Process
	ended   chan struct{}
	stop    chan struct{} // closed when nobody waits for the end any more
}

func (s *stranger) signal(sig os.Signal) error { return s.process.Signal(sig) }
func (s *stranger) gone() <-chan struct{}      { return s.ended }
func (s *stranger) pid() int                   { return s.process.Pid }
func (s *stranger) said() string               { return "see its log" }

func (s *stranger) watch() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for alive(s.process.Pid) {
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
	}
	close(s.ended)
}

// leftOver looks for the server of an earlier parent, and adopts it (true) or stops it. The lock is held.
func (c *Cluster) leftOver(ctx context.Context) (bool, error) {
	pid, port, err := c.postmaster()
	if err != nil || pid == 0 {
		return false, err
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false, err
	}
	s := &stranger{process: p, ended: make(chan struct{}), stop: make(chan struct{})}
	go s.watch()
	if c.options.KeepRunning && port != 0 && (c.port == 0 || c.port == port) {
		before := c.port
		c.port, c.server = port, s
		if err := c.ready(ctx); err == nil {
			return true, nil
		}
		c.port, c.server = before, nil
	}
	if err := shutdown(ctx, s); err != nil {
		close(s.stop)
		return false, fmt.Errorf("what is left of an earlier process: %w", err)
	}
	return false, nil
}

// postmaster is the process, and its port, that serves the directory by its own file; 0 when there is none.
func (c *Cluster) postmaster() (pid, port int, err error) {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	lines := strings.Split(string(text), "\n") // pid, directory, start, port, socket, …
	pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 1 {
		return 0, 0, nil // Postgres itself will say what it thinks of this file
	}
	// After a reboot the pid may be anybody's. A postmaster's working directory is its data.
	if at, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || !same(at, c.data()) {
		return 0, 0, nil
	}
	if len(lines) > 3 {
		port, _ = strconv.Atoi(strings.TrimSpace(lines[3]))
	}
	return pid, port, nil
}

func same(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(state), ") ") // behind the name
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// within are the processes that have their working directory there, as all of a server have.
func within(dir string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if at, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && at == dir && alive(pid) {
			all = append(all, pid)
		}
	}
	return all
}
