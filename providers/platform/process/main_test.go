//go:build linux

package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/platform/process"
	"github.com/bcc94042/instar/providers/process/builtin"
)

// The test binary is also the program that runs templates, and the application of the tenants.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "run-template" {
		os.Exit(builtin.Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "application" {
		os.Exit(application(os.Args[2]))
	}
	os.Exit(m.Run())
}

// facts are what an application tells of itself.
type facts struct {
	Version, Port, Tenant, Dir, Work, Secret string
	PID                                      int
}

// application is one that knows nothing of Instar: it serves on fd 3.
func application(version string) int {
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil || os.Getenv("LISTEN_FDS") != "1" || os.Getenv("LISTEN_PID") != fmt.Sprint(os.Getpid()) {
		fmt.Fprintln(os.Stderr, "no socket:", err)
		return 3
	}
	secret, err := os.ReadFile(os.Getenv("DATABASE_URL_FILE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	if version == "sick" {
		fmt.Fprintln(os.Stderr, "the schema is not there")
		return 5
	}
	if version == "leaky" {
		fmt.Fprintf(os.Stderr, "cannot enter %s, nor postgres://other:word@db: the password secret is wrong\n", secret)
		return 6
	}
	work, _ := os.Getwd()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(facts{
			Version: version, Port: os.Getenv("PORT"), Tenant: os.Getenv("TENANT_ID"), Dir: os.Getenv("TENANT_DIR"), Work: work, Secret: string(secret), PID: os.Getpid(),
		})
	})}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	<-ctx.Done()
	_ = srv.Shutdown(context.Background())
	<-ended
	return 0
}

const quick = "atexit_sleep_ms=0" // of programs that are built with the race detector

func config(t *testing.T, dir string) process.Config {
	self, err := os.Executable()
	require.NoError(t, err)
	c := process.Config{
		Dir: dir, Startup: 40 * time.Second, Grace: 5 * time.Second, Versions: map[string]process.Program{},
		Self: []string{"/usr/bin/env", "GORACE=" + quick, self, "run-template"},
		Log:  slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, v := range []string{"1.0", "1.1", "sick", "leaky"} {
		c.Versions[v] = process.Program{Command: []string{self, "application", v}, Env: map[string]string{"GORACE": quick}}
	}
	return c
}

func opened(t *testing.T, c process.Config) *process.Apps {
	t.Helper()
	a, err := process.Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close(true)) })
	return a
}

func release(number int, version string) process.Release {
	return process.Release{
		Namespace: "default", Tenant: "tenant-acme", Name: fmt.Sprintf("tenant-acme-r%d", number), Owner: "default.acme.own", Fence: uint64(10 * number), Attempt: "deploy-1",
		Version: version, Env: map[string]string{"TENANT_ID": "acme"}, Secrets: map[string]string{"DATABASE_URL": "postgres://acme:secret@db/acme"},
	}
}

func ask(t *testing.T, address string) (f facts) {
	t.Helper()
	resp, err := http.Get("http://" + address)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&f))
	return f
}
