//go:build linux

package platform_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/process/builtin"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/domains"
	"github.com/bcc94042/instar/server/platform"
	"github.com/bcc94042/instar/server/tenants"
)

// Two servers: one that tenants share, and one for their own databases.
var shared, own = postgres.Suite{Config: databasetest.Config}, postgres.Suite{Config: databasetest.Config}

const serverSettings = "INSTAR_TEST_PLATFORM"

// The test binary is also the server, the program that runs templates, and the application of the tenants.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "run-template":
		os.Exit(builtin.Main(os.Args[2:]))
	case len(os.Args) > 2 && os.Args[1] == "application":
		os.Exit(application(os.Args[2]))
	case os.Getenv(serverSettings) != "":
		os.Exit(serve(os.Getenv(serverSettings)))
	}
	os.Setenv("PEBBLE_VA_NOSLEEP", "1")      // it waits before it validates, to be like the real one
	os.Setenv("PEBBLE_WFE_NONCEREJECT", "0") // and rejects some requests
	os.Exit(own.Around(shared.Around(m)).Run())
}

// application answers with its version, its tenant and its database, on the socket that it was handed. One with a gate notes that it has begun, and waits until that is open.
func application(version string) int {
	if gate := os.Getenv("GATE"); gate != "" {
		if err := os.WriteFile(filepath.Join(gate, fmt.Sprint(os.Getpid())), nil, 0o600); err != nil {
			return 2
		}
		for tries := time.NewTicker(20 * time.Millisecond); ; <-tries.C {
			if _, err := os.Stat(filepath.Join(gate, "open")); err == nil {
				break
			}
		}
	}
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return 3
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live" {
			return
		}
		at, err := os.ReadFile(os.Getenv("DATABASE_URL_FILE"))
		var name string
		if err == nil {
			var c *pgx.Conn
			if c, err = pgx.Connect(r.Context(), string(at)); err == nil {
				defer c.Close(context.Background())
				err = c.QueryRow(r.Context(), `select current_database() || ' ' || (select count(*) from public.settings)`).Scan(&name)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, version, " ", os.Getenv("TENANT_ID"), " ", name)
	})}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { _ = srv.Serve(l) }()
	<-ctx.Done()
	if err := srv.Shutdown(context.Background()); err != nil {
		return 4
	}
	return 0
}

// serve is the process of a server: it tells its address and serves until it is killed.
func serve(settings string) int {
	var cfg config.Config
	if err := json.Unmarshal([]byte(settings), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	o := server.Options{
		Machines: []*machines.Machine{database.Machine, domain.Machine, machine.Machine},
		Providers: map[string]server.Provider{
			database.Machine.Name: tenants.Provider(), domain.Machine.Name: domains.Provider(), machine.Machine.Name: platform.Provider(),
		},
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

// world is a server in a process of its own, with databases and a certificate authority.
type world struct {
	t      *testing.T
	cfg    config.Config
	source pg.Address
	roots  *x509.CertPool
	url    string
	cmd    *exec.Cmd
	in     io.Closer
}

func port(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// setup makes databases, an authority and a configuration; start runs the server.
func setup(t *testing.T, ports string) *world {
	t.Helper()
	w := &world{t: t, source: databasetest.Shared(t, &shared, 10, "acme", "other")}
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	w.cfg = config.Defaults(config.Dev)
	w.cfg.Data, w.cfg.HTTP.Listen, w.cfg.NATS.Listen, w.cfg.Log.Level = filepath.Join(dir, "data"), "127.0.0.1:0", fmt.Sprint("127.0.0.1:", port(t)), "warn"
	w.cfg.Tenants = config.Tenants{
		Source: config.TenantSource{DSN: w.source.DSN}, Servers: []config.TenantServer{{Name: "t1", DSN: own.Cluster(t).DSN("postgres")}},
		Keys: filepath.Join(dir, "tenants.json"), Migrations: "../../providers/database/databasetest/migrations",
		Tables: map[string]config.TenantTable{"countries": {Kind: "reference"}, "log": {Kind: "skip"}},
	}
	tlsPort := port(t)
	w.cfg.Domains = config.Domains{HTTPS: fmt.Sprint("127.0.0.1:", tlsPort), Keys: filepath.Join(dir, "domains.json")}
	w.authority(tlsPort, filepath.Join(dir, "ca.pem"))
	w.cfg.Platform.Domain, w.cfg.Platform.Ports, w.cfg.Platform.Health = "apps.example.test", ports, "/live"
	w.cfg.Platform.Env = map[string]string{"GORACE": "atexit_sleep_ms=0"}
	w.cfg.Platform.Versions, w.cfg.Platform.Channels = map[string]config.Release{}, map[string]string{"stable": "1.0", "next": "1.1"}
	for _, v := range []string{"1.0", "1.1"} {
		w.cfg.Platform.Versions[v] = config.Release{Command: []string{self, "application", v}}
	}
	return w
}

// authority is pebble, in this process, which believes that all names lead here.
func (w *world) authority(tlsPort int, file string) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	names := &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(rw dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		for _, q := range r.Question {
			if q.Qtype == dns.TypeA {
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)})
			}
		}
		_ = rw.WriteMsg(m)
	})}
	go func() { _ = names.ActivateAndServe() }()
	w.t.Cleanup(func() { _ = names.Shutdown() })
	quiet, store := log.New(io.Discard, "", 0), db.NewMemoryStore()
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {ValidityPeriod: 3600}})
	front := wfe.New(quiet, store, va.New(quiet, port(w.t), tlsPort, false, l.Addr().String(), store), issuer, []string{"ca.test"}, false, false, 0, 0)
	srv := httptest.NewTLSServer(front.Handler())
	w.t.Cleanup(srv.Close)
	require.NoError(w.t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	w.cfg.Domains.ACME, w.cfg.Domains.CA = srv.URL+wfe.DirectoryPath, file
	w.roots = x509.NewCertPool()
	w.roots.AddCert(issuer.GetRootCert(0).Cert)
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

// kill ends the server as a power loss of its machine would, but for its files and what it has started.
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

// send sends a command to a session of a tenant.
func (w *world) send(tenant, id, command, body string) {
	w.t.Helper()
	status, v := w.do("POST", path(tenant, id)+"/"+command, body)
	require.Less(w.t, status, 300, "%s: %v", command, v)
}

func path(tenant, id string) string { return "/v1/tenants/" + tenant + "/instance_provisionings/" + id }

// becomes reads a session until something holds of it.
func (w *world) becomes(tenant, id, what string, holds func(state string, d *machine.Data) bool) (d machine.Data) {
	w.t.Helper()
	var last map[string]any
	defer func() {
		if w.t.Failed() {
			w.t.Log(last)
		}
	}()
	require.Eventually(w.t, func() bool {
		_, last = w.do("GET", path(tenant, id), "")
		raw, err := json.Marshal(last["data"])
		d = machine.Data{}
		require.NoError(w.t, cmp.Or(err, json.Unmarshal(raw, &d)))
		state, _ := last["state"].(string)
		require.False(w.t, state == machine.Failed && !holds(state, &d), "it has failed")
		return holds(state, &d)
	}, 3*time.Minute, 50*time.Millisecond, what)
	return d
}

func (w *world) ends(tenant, id, state string) machine.Data {
	w.t.Helper()
	return w.becomes(tenant, id, "it is "+state, func(s string, d *machine.Data) bool { return s == state && d.Upgrade == nil })
}

// open asks the proxy for a name, and trusts the certificate authority.
func (w *world) open(host string) (string, error) {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: w.roots, ServerName: host}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", w.cfg.Domains.HTTPS)
		},
	}
	resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get("https://" + host + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
