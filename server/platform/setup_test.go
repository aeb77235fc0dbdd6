//go:build linux

package platform_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/authority"
	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/process/builtin"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/domains"
	"github.com/bcc94042/instar/server/platform"
	"github.com/bcc94042/instar/server/servertest"
	"github.com/bcc94042/instar/server/tenants"
)

// Two servers: one that tenants share, and one for their own databases.
var shared, own = postgres.Suite{Config: databasetest.Config}, postgres.Suite{Config: databasetest.Config}

// The test binary is also the server, the program that runs templates, and the application of the tenants.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "run-template":
		os.Exit(builtin.Main(os.Args[2:]))
	case len(os.Args) > 2 && os.Args[1] == "application":
		os.Exit(application(os.Args[2]))
	}
	servertest.Main(server.Options{
		Machines: []*machines.Machine{database.Machine, domain.Machine, machine.Machine},
		Providers: map[string]server.Provider{
			database.Machine.Name: tenants.Provider(), domain.Machine.Name: domains.Provider(), machine.Machine.Name: platform.Provider(),
		},
	})
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
	l, err := apptest.Listen()
	if err != nil {
		return 3
	}
	fmt.Println("serves", version)
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

// world is a server in a process of its own, with databases and a certificate authority.
type world struct {
	servertest.Process
	source pg.Address
	ca     *authority.Authority
	names  *names
}

// names is a name server: every name is at 127.0.0.1, and has the text that it was told.
type names struct {
	addr  string
	mu    sync.Mutex
	texts map[string]string
}

func startNames(t *testing.T) *names {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &names{addr: l.Addr().String(), texts: map[string]string{}}
	pc, err := net.ListenPacket("udp", n.addr)
	require.NoError(t, err)
	for _, s := range []*dns.Server{{Listener: l, Handler: n}, {PacketConn: pc, Handler: n}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return n
}

func (n *names) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := new(dns.Msg).SetReply(r)
	for _, q := range r.Question {
		head := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET}
		switch text := n.texts[q.Name]; {
		case q.Qtype == dns.TypeA:
			m.Answer = append(m.Answer, &dns.A{Hdr: head, A: net.IPv4(127, 0, 0, 1)})
		case q.Qtype == dns.TypeTXT && text != "":
			m.Answer = append(m.Answer, &dns.TXT{Hdr: head, Txt: []string{text}})
		}
	}
	_ = w.WriteMsg(m) // who asks asks again
}

func (n *names) set(r domain.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.texts[r.Name+"."] = r.Value
}

// setup makes databases, an authority and a configuration; Start runs the server.
func setup(t *testing.T, ports string, change ...func(*authority.Options)) *world {
	t.Helper()
	w := &world{Process: servertest.Process{T: t}, source: databasetest.Shared(t, &shared, 10, "acme", "other"), names: startNames(t)}
	dir := t.TempDir()
	t.Cleanup(w.end)
	self, err := os.Executable()
	require.NoError(t, err)
	w.Config = config.Defaults(config.Dev)
	w.Config.Data, w.Config.HTTP.Listen, w.Config.NATS.Listen, w.Config.Log.Level = filepath.Join(dir, "data"), "127.0.0.1:0", fmt.Sprint("127.0.0.1:", servertest.Port(t)), "warn"
	w.Config.Tenants = config.Tenants{
		Source: config.TenantSource{DSN: w.source.DSN}, Servers: []config.TenantServer{{Name: "t1", DSN: own.Cluster(t).DSN("postgres")}},
		Keys: filepath.Join(dir, "tenants.json"), Migrations: "../../providers/database/databasetest/migrations",
		Tables: map[string]config.TenantTable{"countries": {Kind: "reference"}, "log": {Kind: "skip"}},
	}
	tlsPort := servertest.Port(t)
	w.Config.Domains = config.Domains{HTTPS: fmt.Sprint("127.0.0.1:", tlsPort), Keys: filepath.Join(dir, "domains.json"), Resolvers: w.names.addr}
	file := filepath.Join(dir, "ca.pem")
	o := authority.Options{Names: w.names.addr, HTTPPort: servertest.Port(t), TLSPort: tlsPort, Good: time.Hour}
	for _, c := range change {
		c(&o)
	}
	w.ca, err = authority.Start(o, file)
	require.NoError(t, err)
	t.Cleanup(w.ca.Close)
	w.Config.Domains.ACME, w.Config.Domains.CA = w.ca.URL, file
	w.Config.Platform.Domain, w.Config.Platform.Ports, w.Config.Platform.Health = "apps.example.test", ports, "/live"
	w.Config.Platform.Storage.Listen, w.Config.Platform.Logs = fmt.Sprint("127.0.0.1:", servertest.Port(t)), true
	w.Config.Platform.Env = map[string]string{"GORACE": "atexit_sleep_ms=0"}
	w.Config.Platform.Versions, w.Config.Platform.Channels = map[string]config.Release{}, map[string]string{"stable": "1.0", "next": "1.1"}
	for _, v := range []string{"1.0", "1.1"} {
		w.Config.Platform.Versions[v] = config.Release{Command: []string{self, "application", v}}
	}
	return w
}

// send sends a command to a session of a tenant.
func (w *world) send(tenant, id, command, body string) {
	w.T.Helper()
	w.OK("POST", path(tenant, id)+"/"+command, body)
}

// written are the lines that are kept of what the releases of a session have written, or why they cannot be read now.
func (w *world) written(tenant, id string) string {
	resp, err := http.Get(w.URL + path(tenant, id) + "/logs?follow=false")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return resp.Status + "\n" + string(text)
}

func path(tenant, id string) string { return "/v1/tenants/" + tenant + "/instance_provisionings/" + id }

// becomes reads a session until something holds of it.
func (w *world) becomes(tenant, id, what string, holds func(state string, d *machine.Data) bool) (d machine.Data) {
	w.T.Helper()
	var last map[string]any
	defer func() {
		if w.T.Failed() {
			w.T.Log(last)
		}
	}()
	require.Eventually(w.T, func() bool {
		_, last = w.Do("GET", path(tenant, id), "")
		raw, err := json.Marshal(last["data"])
		d = machine.Data{}
		require.NoError(w.T, cmp.Or(err, json.Unmarshal(raw, &d)))
		state, _ := last["state"].(string)
		require.False(w.T, state == machine.Failed && !holds(state, &d), "it has failed")
		return holds(state, &d)
	}, 3*time.Minute, 50*time.Millisecond, what)
	return d
}

func (w *world) ends(tenant, id, state string) machine.Data {
	w.T.Helper()
	return w.becomes(tenant, id, "it is "+state, func(s string, d *machine.Data) bool { return s == state && d.Upgrade == nil })
}

// open asks the proxy for a name, and trusts the certificate authority.
func (w *world) open(host string) (string, error) {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: w.ca.Roots, ServerName: host}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", w.Config.Domains.HTTPS)
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
