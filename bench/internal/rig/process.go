// Package rig has what the benchmarks of programs as processes of their own share: how these are started, waited for and
// ended, what they cost by the system's account, and connections that cost the load generator little.
package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bcc94042/instar/internal/lockedbuffer"
)

// Process is a program that runs beside the benchmark, and ends with it.
type Process struct {
	Log  *lockedbuffer.Buffer // what it prints
	cmd  *exec.Cmd
	gone chan struct{}
}

// Start runs a program with further variables of the environment. It refuses a script, such as npm installs beside a
// program: the CPU time and memory of what that starts would not be seen, and it would not end with this program.
func Start(log *lockedbuffer.Buffer, env []string, binary string, args ...string) (*Process, error) {
	f, err := os.Open(binary)
	if err != nil {
		return nil, err
	}
	first := make([]byte, 2)
	_, err = io.ReadFull(f, first)
	_ = f.Close() // only read
	if err != nil || string(first) == "#!" {
		return nil, fmt.Errorf("%s is a script: give the program that it starts", binary)
	}
	p := &Process{Log: log, cmd: exec.Command(binary, args...), gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.gone)
	}()
	return p, nil
}

// Kill ends it at once: what it stored is thrown away.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// Stop asks it to end, and waits for that.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not stop: %w", filepath.Base(p.cmd.Path), ctx.Err())
	}
}

// Free is an address of this machine that nothing listens at.
func Free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Ready waits until the process answers 200 at the URL.
func (p *Process) Ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.gone:
			return fmt.Errorf("%s has ended:\n%s", filepath.Base(p.cmd.Path), p.Log)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready within a minute:\n%s", filepath.Base(p.cmd.Path), p.Log)
		case <-tick.C:
		}
	}
}

// CPU is the user and system time of the process so far. The kernel counts in hundredths of a second (proc(5), stat).
func (p *Process) CPU() (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("cannot read %q", raw)
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("cannot read %q", raw)
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}

// Memory is what the process has resident, in bytes.
func (p *Process) Memory() (int, error) { return p.status("VmRSS:") }

// Peak is the most that it had resident so far, in bytes.
func (p *Process) Peak() (int, error) { return p.status("VmHWM:") }

// status reads a line of proc(5), in bytes.
func (p *Process) status(name string) (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no %s", p.cmd.Process.Pid, name)
}
