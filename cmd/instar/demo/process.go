// Package demo keeps promises where a person sees it: servers are restarted and killed while others call them, and a relay, its database
// and NATS while an application writes.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/bcc94042/instar/internal/pdeathsig"
)

// demoProcess is this program again, doing something that is to be killed. It ends with its parent.
type demoProcess struct {
	args  []string
	env   []string
	log   string // file of what it says; empty says it nowhere
	again bool   // started again when it ends by itself, as a supervisor does: a relay ends where its database is away at the start

	mu    sync.Mutex
	cmd   *exec.Cmd // nil from a kill on
	ended chan struct{}
}

// Process is a demoProcess of a demo in a folder of its own.
type Process = demoProcess

// Start starts this program again, with arguments and variables; what it says is in a file.
func Start(log string, env []string, args ...string) (*Process, error) {
	p := &demoProcess{args: args, env: env, log: log}
	return p, p.start()
}

// start starts it. The thread that does so stays until the process has ended: the kernel takes the end of that thread
// for the end of the parent.
func (p *demoProcess) start() error {
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		p.mu.Lock()
		cmd, err := p.launch()
		if err == nil {
			p.cmd, p.ended = cmd, ended
		}
		p.mu.Unlock()
		started <- err
		for err == nil {
			_ = cmd.Wait() // it is killed, or its log says why
			if !p.again {
				return
			}
			time.Sleep(300 * time.Millisecond) // the pause of a supervisor
			cmd, err = p.relaunch()
		}
	}()
	return <-started
}

// relaunch starts what has ended by itself, unless it is killed meanwhile.
func (p *demoProcess) relaunch() (*exec.Cmd, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil, errors.New("it was killed")
	}
	cmd, err := p.launch()
	if err == nil {
		p.cmd = cmd
	}
	return cmd, err
}

func (p *demoProcess) launch() (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, p.args...) // #nosec G204 -- this program
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the parent
	pdeathsig.Set(cmd.SysProcAttr, syscall.SIGKILL)
	if p.log != "" {
		log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		defer func() { _ = log.Close() }() // the child has its own
		cmd.Stdout, cmd.Stderr = log, log
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %v: %w", p.args, err)
	}
	return cmd, nil
}

// Kill is kill -9, and waits until it has gone.
func (p *demoProcess) Kill() error {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return errors.New("the process does not run")
	}
	select {
	case <-ended:
		return fmt.Errorf("%v had ended by itself: %s", p.args, LastWords(p.log))
	default:
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-ended
	return nil
}

// End tells it to stop, and waits until it has. One that does not is killed when ctx ends.
func (p *demoProcess) End(ctx context.Context) error {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd == nil {
		return errors.New("the process does not run")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%v does not stop", p.args), p.Kill())
	}
}

// PID is the number of the process; 0 when it was killed.
func (p *demoProcess) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Ask sends a request. The answer is decoded into what is given.
func Ask(ctx context.Context, method, url string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	if body == nil {
		req.Body, req.ContentLength = nil, 0
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	raw, err = io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, bytes.TrimSpace(raw))
	case into == nil:
		return nil
	}
	if text, ok := into.(*[]byte); ok {
		*text = raw
		return nil
	}
	return json.Unmarshal(raw, into)
}
