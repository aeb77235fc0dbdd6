//go:build linux

package process

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/process/builtin"
	"github.com/bcc94042/instar/providers/process/child"
)

// The test binary is also the program that runs templates, a control plane of its own, and two foreign programs.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 {
		os.Exit(tests(m))
	}
	switch os.Args[1] {
	case "run-template":
		os.Exit(builtin.Main(os.Args[2:]))
	case "control-plane":
		controlPlane(os.Args[2])
	case "foreign":
		foreign(os.Args[2])
	default:
		os.Exit(tests(m))
	}
}

func tests(m *testing.M) int {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func itoa(n int) string { return strconv.Itoa(n) }

// How long a test waits for what must happen, and how often it looks.
const (
	awhile = 20 * time.Second
	tick   = 10 * time.Millisecond
)

// noSleep keeps programs that are built with the race detector from sleeping for a second when they exit.
const noSleep = "atexit_sleep_ms=0"

// config of a gateway with all kinds of templates and little patience.
func config(dir string) Config {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	quick := map[string]string{"GORACE": noSleep}
	return Config{
		Dir: dir, Self: []string{"/usr/bin/env", "GORACE=" + noSleep, self, "run-template"}, Grace: 5 * time.Second, Settle: 100 * time.Millisecond, Backoff: 20 * time.Millisecond,
		Templates: map[string]Template{
			"passed": {Command: []string{self, "foreign", "fd"}, Env: quick, Socket: SocketFD},
			"public": {Command: []string{self, "foreign", "fd"}, Env: quick, Socket: SocketPublic, Home: true, Limits: builtin.Limits{Files: 256, File: 1 << 20, NoPrivileges: true, NoMemoryDumps: true}},
			"late":   {Command: []string{self, "foreign", "late"}, Env: quick, Socket: SocketPublic, Home: true, Hung: 500 * time.Millisecond},
			"ported": {Command: []string{self, "foreign", "port"}, Env: quick, Socket: SocketPort},
		},
		LogBytes: 4 << 10,
	}
}

// controlPlane runs a gateway until it is killed; it says when it is open.
func controlPlane(dir string) {
	g, err := Open(config(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("open")
	_, err = g.Apply(context.Background(), apply("web", "hello", 1))
	fmt.Println("applied", err)
	_, err = g.Apply(context.Background(), apply("port", "ported", 1))
	fmt.Println("applied", err)
	select {}
}

// opened is a gateway on a directory; whatever it leaves is ended with the test.
func opened(t *testing.T, c Config) *Gateway {
	t.Helper()
	c.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	g, err := Open(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.Close(true))
		_, err := child.EndStrays(g.owner, nil)
		require.NoError(t, err)
	})
	return g
}

// begun is a gateway with a service that serves; the test closes it.
func begun(t *testing.T, c Config, req providers.ApplyRequest) (*Gateway, service.Observation) {
	t.Helper()
	g, err := Open(c)
	require.NoError(t, err)
	_, err = g.Apply(t.Context(), req)
	require.NoError(t, err)
	return g, await(t, g, req, converged(req))
}

func setup(t *testing.T) *Gateway {
	t.Helper()
	return opened(t, config(t.TempDir()))
}

// apply asks for a generation of a service.
func apply(name, image string, generation uint64) providers.ApplyRequest {
	return providers.ApplyRequest{
		Request: providers.Request{
			Namespace: "default", Name: name, UID: "life-1", Fence: generation,
			Hash: fmt.Sprintf("hash-%d", generation), Attempt: fmt.Sprintf("apply-%d-1", generation),
		},
		Generation: generation,
		Spec:       service.Spec{Image: image, Probe: service.Probe{PeriodMillis: 100, StartupSeconds: 10}},
	}
}

// await observes until it holds.
func await(t *testing.T, g *Gateway, req providers.ApplyRequest, holds func(*service.Observation) bool) service.Observation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		o, err := g.Observe(ctx, providers.ObserveRequest{Request: req.Request})
		if err == nil && holds(&o) {
			return o
		}
		select {
		case <-ctx.Done():
			require.FailNow(t, "never seen", "last: %+v %v", o, err)
		case <-tick.C:
		}
	}
}

func converged(req providers.ApplyRequest) func(o *service.Observation) bool {
	return func(o *service.Observation) bool {
		return o.SpecHash == req.Hash && o.Generation == o.ObservedGeneration && o.Ready == "True" && o.Route == "True"
	}
}

// foreign is a program that knows nothing of this one: a plain server on fd 3 or on PORT.
func foreign(kind string) {
	answers := make(chan struct{})
	if _, err := os.Stat("again"); err == nil { // in the directory of a service: it answers late at all starts but the first
		time.AfterFunc(1200*time.Millisecond, func() { close(answers) })
	} else if close(answers); kind == "late" {
		os.WriteFile("again", nil, 0o600)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-answers:
		case <-r.Context().Done():
			return
		}
		fmt.Fprintln(w, os.Getenv("INSTAR_REVISION"), os.Getenv("LISTEN_PID") == fmt.Sprint(os.Getpid()))
	})}
	l, err := foreignListener(kind)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go srv.Serve(l)
	<-ctx.Done()
	if err := srv.Shutdown(context.Background()); err != nil {
		os.Exit(4)
	}
	os.Exit(0)
}

// pid of the only process of the serving revision.
func pid(t *testing.T, g *Gateway, key string) int {
	t.Helper()
	g.mu.Lock()
	u := g.units[key]
	g.mu.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.state.revision(u.state.Serving).Copies[0].Process
	require.NotNil(t, p)
	return p.PID
}

// runs reports whether there is a process that has not ended.
func runs(pid int) bool {
	raw, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	return err == nil && !bytes.HasPrefix(raw[bytes.LastIndexByte(raw, ')')+1:], []byte(" Z"))
}

func logOf(g *Gateway, key, revision string) string {
	return filepath.Join(g.config.Dir, key, "logs", revision+".log")
}
