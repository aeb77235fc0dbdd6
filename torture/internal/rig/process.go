package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/bcc94042/instar/internal/wait"
)

// Process is one run of a program.
type Process struct {
	Began  time.Time
	cmd    *exec.Cmd
	log    *os.File
	exited chan struct{}
	err    error // of Wait, once exited is closed
}

// spawn starts processes from one thread that never ends: the kernel kills a child when the thread that started it
// ends, which is how no process outlives this one.
var spawn = func() func(*exec.Cmd) error {
	type job struct {
		cmd  *exec.Cmd
		done chan error
	}
	jobs := make(chan job)
	go func() {
		runtime.LockOSThread()
		for j := range jobs {
			j.done <- j.cmd.Start()
		}
	}()
	return func(cmd *exec.Cmd) error {
		j := job{cmd, make(chan error, 1)}
		jobs <- j
		return <-j.done
	}
}()

// start runs a program; what it says is appended to a file.
func start(log string, env []string, name string, args ...string) (*Process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log of a process: %w", err)
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &Process{Began: time.Now(), cmd: cmd, log: f, exited: make(chan struct{})}
	if err := spawn(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start %s: %w", name, err), f.Close())
	}
	go func() {
		p.err = cmd.Wait()
		_ = f.Close() // the child wrote it
		close(p.exited)
	}()
	return p, nil
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Killed reports whether the process has ended by SIGKILL.
func (p *Process) Killed() bool {
	var exit *exec.ExitError
	if p.Running() || !errors.As(p.err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Kill ends the process as kill -9 does, and returns when it has gone.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.exited
}

// Stop asks the process to end and kills it after a while.
func (p *Process) Stop() {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(25 * time.Second):
		p.Kill()
	}
}

// Signal sends a signal if the process has not ended.
func (p *Process) Signal(s syscall.Signal) {
	if p.Running() {
		_ = p.cmd.Process.Signal(s) // it may end at this moment
	}
}

// Wait returns when the process has ended, or an error when it has not in that time.
func (p *Process) Wait(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the process has not ended within %s", most)
	}
}

// Port picks a free port on loopback, below those that the system gives to connections: a server that is started again
// must find its port free. Another process may take it all the same; that is told by a failed start.
func Port() (string, error) {
	var last error
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		last = err
	}
	return "", fmt.Errorf("cannot find a free port: %w", last)
}

// Until asks every 20 ms until something holds, and fails when it does not in that time.
func Until(ctx context.Context, most time.Duration, what string, holds func() bool) error {
	end := time.Now().Add(most)
	for !holds() {
		if time.Now().After(end) {
			return fmt.Errorf("not within %s: %s", most, what)
		}
		if !wait.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// Pid is the id of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }
