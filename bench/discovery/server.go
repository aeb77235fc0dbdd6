package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/internal/program"
)

// server is the program as a process.
type server struct {
	*rig.Process
	http   string // address
	nats   string
	pprof  string // empty: profiles are not wanted
	binary string
	args   []string
	env    []string
	log    *lockedbuffer.Buffer
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
	s := &server{binary: o.binary, env: env, log: &lockedbuffer.Buffer{}}
	var err error
	if s.http, err = rig.Free(); err != nil {
		return nil, err
	}
	if s.nats, err = rig.Free(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.data, "data")
	if err != nil {
		return nil, err
	}
	if o.profile != "" {
		if s.pprof, err = rig.Free(); err != nil {
			return nil, err
		}
		s.env = append(s.env, "INSTAR_BENCH_PPROF="+s.pprof)
	}
	args = append([]string{"serve", "--data", dir, "--http", s.http, "--nats", s.nats, "--durability", "interval", "--gateway", "simulated", "--insecure"}, args...)
	s.args = args
	return s, s.run()
}

// again runs a server that was stopped on the data that it had.
func (s *server) again() (*server, error) {
	next := *s
	return &next, next.run()
}

func (s *server) run() (err error) {
	s.Process, err = rig.Start(s.log, s.env, s.binary, s.args...)
	return err
}

func (s *server) ready(ctx context.Context) error { return s.Ready(ctx, s.url("/readyz")) }

func (s *server) stop() { s.Kill() }

func (s *server) cpu() (time.Duration, error) { return s.CPU() }

func (s *server) url(path string) string { return "http://" + s.http + path }

func (s *server) connect() (*nats.Conn, error) { return nats.Connect("nats://" + s.nats) }

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
