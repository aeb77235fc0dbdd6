package tenants_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/tenants"
)

const (
	serverSettings = "INSTAR_TEST_TENANTS"
	migrations     = "../../providers/database/databasetest/migrations"
)

// serve is the process of a server: it tells its address and serves until it is killed.
func serve(settings string) int {
	var cfg config.Config
	if err := json.Unmarshal([]byte(settings), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	o := server.Options{
		Machines: []*machines.Machine{machine.Machine}, Providers: map[string]server.Provider{machine.Machine.Name: tenants.Provider()},
		Open: func(_ context.Context, h *server.Host) error {
			h.Serving(func(_ context.Context, url string) error { fmt.Println(url); return nil })
			return nil
		},
	}
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(3) }() // the test has ended without killing it
	if err := server.Run(context.Background(), cfg, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// world is a server in a process of its own, with a shared database and a server for those of tenants.
type world struct {
	t      *testing.T
	cfg    config.Config
	source pg.Address
	url    string
	cmd    *exec.Cmd
	in     io.Closer
}

// setup makes databases and a configuration; start runs the server.
func setup(t *testing.T, orders int, names ...string) *world {
	t.Helper()
	w := &world{t: t, source: databasetest.Shared(t, &shared, orders, names...)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.cfg = config.Defaults(config.Dev)
	w.cfg.Data, w.cfg.HTTP.Listen, w.cfg.NATS.Listen, w.cfg.Log.Level = t.TempDir(), "127.0.0.1:0", l.Addr().String(), "warn"
	require.NoError(t, l.Close())
	w.cfg.Tenants = config.Tenants{
		Source:     config.TenantSource{DSN: w.source.DSN},
		Servers:    []config.TenantServer{{Name: "t1", DSN: own.Cluster(t).DSN("postgres")}},
		Keys:       filepath.Join(t.TempDir(), "keys.json"),
		Migrations: migrations,
		Tables:     map[string]config.TenantTable{"countries": {Kind: "reference"}, "log": {Kind: "skip"}},
		RangeRows:  10,
	}
	return w
}

func (w *world) target(tenant string) pg.Address {
	return pg.Address{DSN: own.Cluster(w.t).DSN("postgres"), Database: "tenant_" + strings.ReplaceAll(tenant, "-", "_")}
}

func (w *world) start() {
	w.t.Helper()
	settings, err := json.Marshal(w.cfg)
	require.NoError(w.t, err)
	w.cmd = exec.CommandContext(context.WithoutCancel(w.t.Context()), os.Args[0])
	w.cmd.Env, w.cmd.Stderr = append(os.Environ(), serverSettings+"="+string(settings)), os.Stderr
	w.in, err = w.cmd.StdinPipe()
	require.NoError(w.t, err)
	out, err := w.cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, w.cmd.Start())
	w.t.Cleanup(w.kill)
	line := ""
	for s := bufio.NewScanner(out); !strings.HasPrefix(line, "http") && s.Scan(); {
		line = s.Text()
	}
	require.NotEmpty(w.t, line, "the server says where it is")
	w.url = line
	go func() { _, _ = io.Copy(io.Discard, out) }()
}

// refused starts a server that is to end by itself, and returns what it says.
func (w *world) refused() string {
	w.t.Helper()
	settings, err := json.Marshal(w.cfg)
	require.NoError(w.t, err)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), serverSettings+"="+string(settings))
	_, err = cmd.StdinPipe()
	require.NoError(w.t, err)
	out, err := cmd.CombinedOutput()
	require.Error(w.t, err)
	require.NoError(w.t, ctx.Err(), "it goes on")
	return string(out)
}

// kill ends the server as a power loss of its machine would, but for its files.
func (w *world) kill() {
	if w.cmd.ProcessState == nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
}

func (w *world) do(method, path, body string) (int, map[string]any) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	var v map[string]any
	require.NoError(w.t, json.Unmarshal(text, &v), "%s %s: %s", method, path, text)
	return resp.StatusCode, v
}

func (w *world) ok(method, path, body string) map[string]any {
	w.t.Helper()
	status, v := w.do(method, path, body)
	require.Less(w.t, status, 300, "%s %s: %v", method, path, v)
	return v
}

// path is that of a session.
func path(tenant, id string) string { return "/v1/tenants/" + tenant + "/database_provisionings/" + id }

// until reads the session until it is as wanted.
func (w *world) until(tenant, id, what string, holds func(state string, data map[string]any) bool) (data map[string]any) {
	w.t.Helper()
	var last map[string]any
	defer func() {
		if w.t.Failed() {
			w.t.Log(last)
		}
	}()
	require.Eventually(w.t, func() bool {
		_, last = w.do("GET", path(tenant, id), "")
		state, _ := last["state"].(string)
		data, _ = last["data"].(map[string]any)
		return holds(state, data)
	}, 3*time.Minute, 50*time.Millisecond, what)
	return data
}

func (w *world) ends(tenant, id, state string) map[string]any {
	w.t.Helper()
	return w.until(tenant, id, "it is "+state, func(s string, _ map[string]any) bool { return s == state })
}

const (
	waitFor = time.Minute
	tick    = 20 * time.Millisecond
)
