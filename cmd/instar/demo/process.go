// Package demo keeps promises where a person sees it: servers are restarted and killed while others call them, and a relay, its database
// and NATS while an application writes.
package demo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"github.com/bcc94042/instar/internal/pdeathsig"
)

// demoProcess is this program again, doing something that is to be killed. It ends with its parent.
type demoProcess struct {
	args []string
	env  []string
	log  string // file of what it says; empty says it nowhere

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

// start starts it. The thread that does so stays until the process has ended: the kernel takes the end of that thread
// for the end of the parent.
func (p *demoProcess) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, p.args...) // #nosec G204 -- this program
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the parent
	pdeathsig.Set(cmd.SysProcAttr, syscall.SIGKILL)
	var log *os.File
	if p.log != "" {
		if log, err = os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = log, log
	}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
		if log != nil {
			_ = log.Close() // the child has its own
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("cannot start %v: %w", p.args, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.ended = cmd, ended
	return nil
}

// kill is kill -9, and waits until it has gone.
func (p *demoProcess) kill() error {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return errors.New("the process does not run")
	}
	select {
	case <-ended:
		return fmt.Errorf("%v had ended by itself: %s", p.args, lastWords(p.log))
	default:
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-ended
	return nil
}

func (p *demoProcess) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}
