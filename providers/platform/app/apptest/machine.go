package apptest

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bcc94042/instar/internal/lockedbuffer"
)

// Machine runs programs as a fake of what really does: systemd, an engine of containers. It starts again what ends. The zero value has none.
type Machine struct {
	mu   sync.Mutex
	runs map[string]*Job
}

// Job is one of its programs.
type Job struct {
	Command     []string
	Environ     []string
	Dir         string
	mu          sync.Mutex
	pid, ends   int // of the process; how often it has ended
	code        int // of the last end
	said        lockedbuffer.Buffer
	stop, ended chan struct{}
}

// ErrExists says that there is a program of that name.
var ErrExists = errors.New("it is there")

// Start runs a program under a name that is free.
func (m *Machine) Start(name string, r *Job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs[name] != nil {
		return ErrExists
	}
	if m.runs == nil {
		m.runs = make(map[string]*Job)
	}
	r.stop, r.ended = make(chan struct{}), make(chan struct{})
	m.runs[name] = r
	go r.loop()
	return nil
}

func (r *Job) loop() {
	defer close(r.ended)
	for {
		cmd := exec.Command(r.Command[0], r.Command[1:]...) // #nosec G204 -- of a test
		cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = r.Environ, r.Dir, &r.said, &r.said
		exited := make(chan error, 1)
		err := cmd.Start()
		if err == nil {
			r.set(cmd.Process.Pid)
			go func() { exited <- cmd.Wait() }()
		} else {
			exited <- err
		}
		select {
		case err = <-exited:
		case <-r.stop:
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			select {
			case <-exited:
			case <-time.After(10 * time.Second):
				_ = cmd.Process.Kill()
				<-exited
			}
			return
		}
		r.failed(err, cmd.ProcessState.ExitCode())
		select {
		case <-r.stop:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (r *Job) set(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pid = pid
}

func (r *Job) failed(err error, code int) {
	if code < 0 && err != nil {
		_, _ = fmt.Fprintln(&r.said, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pid, r.code = 0, code
	r.ends++
}

// State is what a program stands at.
type State struct {
	Running    bool
	Ends, Code int
	Last       string // line that it wrote
}

// Look tells of a program.
func (m *Machine) Look(name string) (State, bool) {
	m.mu.Lock()
	r := m.runs[name]
	m.mu.Unlock()
	if r == nil {
		return State{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(r.said.String()), "\n")
	return State{Running: r.pid != 0, Ends: r.ends, Code: r.code, Last: lines[len(lines)-1]}, true
}

// Remove ends a program, and reports whether there was one.
func (m *Machine) Remove(name string) bool {
	m.mu.Lock()
	r := m.runs[name]
	delete(m.runs, name)
	m.mu.Unlock()
	if r == nil {
		return false
	}
	close(r.stop)
	<-r.ended
	return true
}

// Names are those of all programs.
func (m *Machine) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.runs))
}

// End ends all of them.
func (m *Machine) End() {
	for _, name := range m.Names() {
		m.Remove(name)
	}
}
