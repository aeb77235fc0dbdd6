package main

import (
	"bytes"
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

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/internal/program"
)

// server is the program as a process.
type server struct {
	cmd   *exec.Cmd
	http  string // address
	nats  string
	pprof string // empty: profiles are not wanted
	args  []string
	env   []string
	log   *bytes.Buffer
	gone  chan struct{}
}

// build makes the program as a user would; profiled, with a door for profiles.
func build(ctx context.Context, dir string, profiled bool) (string, error) {
	root, err := program.Root(ctx)
	if err != nil {
		return "", err
	}
	bin, args := filepath.Join(dir, "instar"), []string{"-trimpath"}
	if profiled {
		file, err := overlay(dir, program.Folder(root))
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", file)
	}
	return bin, program.Build(ctx, root, bin, args...)
}

// start runs a server on a new directory and waits until it is ready.
func start(ctx context.Context, o *options, args ...string) (*server, error) {
	return startWith(ctx, nil, o, args...)
}

func startWith(ctx context.Context, env []string, o *options, args ...string) (*server, error) {
	s, err := launch(env, o, args...)
	if err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func launch(env []string, o *options, args ...string) (*server, error) {
	s := &server{env: env, log: &bytes.Buffer{}, gone: make(chan struct{})}
	var err error
	if s.http, err = free(); err != nil {
		return nil, err
	}
	if s.nats, err = free(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.data, "data")
	if err != nil {
		return nil, err
	}
	if o.profile != "" {
		if s.pprof, err = free(); err != nil {
			return nil, err
		}
		s.env = append(s.env, "INSTAR_BENCH_PPROF="+s.pprof)
	}
	args = append([]string{"serve", "--data", dir, "--http", s.http, "--nats", s.nats, "--durability", "interval", "--gateway", "simulated", "--insecure"}, args...)
	s.args = args
	return s, s.run(o.binary)
}

// again runs a server that was stopped on the data that it had.
func (s *server) again() (*server, error) {
	next := &server{http: s.http, nats: s.nats, pprof: s.pprof, args: s.args, env: s.env, log: s.log, gone: make(chan struct{})}
	return next, next.run(s.cmd.Path)
}

func (s *server) run(binary string) error {
	s.cmd = exec.Command(binary, s.args...)
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.gone)
	}()
	return nil
}

func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := http.Get(s.url("/readyz"))
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.gone:
			return fmt.Errorf("the server has ended:\n%s", s.log)
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready within a minute:\n%s", s.log)
		case <-tick.C:
		}
	}
}

func (s *server) url(path string) string { return "http://" + s.http + path }

func (s *server) stop() {
	_ = s.cmd.Process.Kill() // its data is thrown away
	<-s.gone
}

func (s *server) connect() (*nats.Conn, error) { return nats.Connect("nats://" + s.nats) }

// cpu is the user and system time of the process so far. The kernel counts in hundredths of a second (proc(5), stat).
func (s *server) cpu() (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
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

// memory is what the process has resident, in bytes.
func (s *server) memory() (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", s.cmd.Process.Pid)
}

// metric reads a value that the server shows of itself.
func (s *server) metric(ctx context.Context, name string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url("/metrics"), nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return int(v), err
		}
	}
	return 0, fmt.Errorf("the server shows no %s", name)
}
