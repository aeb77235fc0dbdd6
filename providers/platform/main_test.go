//go:build linux

package platform_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	domains "github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/domain/proxy"
	"github.com/bcc94042/instar/providers/platform"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/process"
	"github.com/bcc94042/instar/providers/platform/storage"
	"github.com/bcc94042/instar/providers/process/builtin"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// The test binary is also the program that runs templates, and the application of the tenants.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "run-template" {
		os.Exit(builtin.Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "application" {
		os.Exit(application(os.Args[2]))
	}
	os.Exit(second.Around(first.Around(m)).Run())
}

// Postgres of the two tests that need a real one: both have the same tenant.
var first, second = postgres.Suite{Config: databasetest.Config}, postgres.Suite{Config: databasetest.Config}

// application answers with its version and its tenant, on the socket that it was handed, when it has read the request.
func application(version string) int {
	if version == "sick" {
		fmt.Fprintln(os.Stderr, "it has a mistake")
		return 5
	}
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return 3
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, version, " ", os.Getenv("TENANT_ID"), " ", os.Getenv("DATABASE_NAME"), " ", os.Getenv("STORAGE_BUCKET"), " ", os.Getenv("PRIMARY_DOMAIN"))
		if key, err := os.ReadFile(os.Getenv("KEY_FILE")); err == nil {
			fmt.Fprint(w, " ", string(key), " ", os.Getenv("COLOR"))
		}
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

// rows is a table in memory, which the proxy follows.
type rows struct {
	mu    sync.Mutex
	all   map[string]domain.Row
	proxy *proxy.Proxy
}

func (r *rows) Row(_ context.Context, host string) (domain.Row, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[host], nil
}

func (r *rows) Change(_ context.Context, host string, change func(domain.Row) (domain.Row, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := change(r.all[host])
	if err != nil {
		return err
	}
	r.all[host] = next
	var routes []proxy.Route
	for host, row := range r.all {
		if row.Route != nil {
			route := proxy.Route{Host: host}
			for _, t := range row.Route.Targets {
				route.Backends = append(route.Backends, proxy.Backend{Address: t.Address, Weight: t.Weight})
			}
			routes = append(routes, route)
		}
	}
	r.proxy.Set(routes)
	return nil
}

// lead leads a name to an address, as the session of a custom domain does.

// workers stand for those of databases: they note what they are asked.
type workers struct {
	mu    sync.Mutex
	asked []string
	fails string            // an action that cannot be performed
	ends  *machines.Failure // of an undo
	there bool              // the tenant is in its database
}

func (w *workers) Perform(_ context.Context, t machines.Task) machines.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b database.Task
	if err := json.Unmarshal(t.Data, &b); err != nil {
		return machines.Result{Failure: &machines.Failure{Code: "invalid"}}
	}
	switch t.Effect {
	case "plan":
		return machines.Result{Data: database.Plan{Rows: map[string]int64{"orders": 7}, Total: 7}}
	case "undo":
		if w.ends != nil {
			return machines.Result{Failure: w.ends}
		}
		var out session.Results
		var names []string
		for _, a := range b.Actions {
			r := session.ActionResult{Action: a.Name, Done: a.Name != w.fails}
			if !r.Done {
				r.Error = "the server is away"
			}
			out.Actions, names = append(out.Actions, r), append(names, a.Name)
		}
		w.asked = append(w.asked, strings.Join(names, "+"))
		return machines.Result{Data: out}
	}
	if t.Effect == database.ActionCheck {
		if w.there {
			return machines.Result{Failure: &machines.Failure{Message: "the tenant is in this database already: resolve as ready"}}
		}
		return machines.Result{}
	}
	w.asked = append(w.asked, t.Effect+" "+b.Request.EnterpriseID)
	return machines.Result{Data: database.Allocated{DatabaseID: "pg/tenant_" + b.Request.EnterpriseID, Name: "tenant_" + b.Request.EnterpriseID}}
}

func (w *workers) Look(context.Context, *machines.Entity, bool) (machines.Finding, error) {
	return machines.Finding{Input: machine.ReportProgressed}, nil
}

// issuer has certificates for all names.
type issuer struct {
	mu  sync.Mutex
	all map[string]bool

	has     domains.Certificate // as Current says it
	due     time.Time
	trouble string
	err     error // of Obtain, too
}

func (i *issuer) Current(context.Context, string) (*domains.Certificate, time.Time, string, error) {
	return &i.has, i.due, i.trouble, i.err
}

func (i *issuer) Obtain(_ context.Context, host string) (domains.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return domains.Certificate{}, i.err
	}
	i.all[host] = true
	return domains.Certificate{Issuer: "test", Serial: "1"}, nil
}

func (i *issuer) Forget(_ context.Context, host string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.all, host)
	return nil
}

// bindings are those of custom domains.
type bindings struct {
	mu      sync.Mutex
	all     map[string]domains.Route
	removed platform.Binding          // last
	taken   string                    // a name that somebody else has bound
	leads   map[string]*domains.Route // names that somebody has bound
	stays   bool                      // they are not being removed
}

func (b *bindings) Check(_ context.Context, of platform.Binding) error {
	if of.Host == b.taken {
		return providers.Errorf(providers.Invalid, "%s is bound already", of.Host)
	}
	return nil
}

func (b *bindings) Point(_ context.Context, to platform.Binding) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, bound := b.all[to.Host]; bound || to.Anew {
		b.all[to.Host] = to.Route
	}
	return to.Namespace + "." + to.Tenant + "." + strings.ReplaceAll(to.Host, ".", "-"), nil
}

func (b *bindings) Remove(_ context.Context, of platform.Binding) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removed = of
	delete(b.all, of.Host)
	return nil
}

func (b *bindings) lead(host, address string) {
	b.leads = map[string]*domains.Route{host: {Targets: []domains.Target{{Address: address}}}}
}

func (b *bindings) Leading(_ context.Context, _, _, address string) (host string, removed bool, err error) {
	for host := range b.leads {
		if domain.Leads(b.leads[host], address) {
			return host, !b.stays, nil
		}
	}
	return "", false, nil
}

// world is a provider with everything that it needs.
type world struct {
	*platform.Provider
	t        *testing.T
	dir      string
	env      *streamstest.Env
	rows     *rows
	workers  *workers
	issuer   *issuer
	bindings *bindings
}

func setup(t *testing.T) *world {
	t.Helper()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	px := proxy.New(proxy.Options{})
	front := httptest.NewTLSServer(px)
	t.Cleanup(front.Close)
	self, err := os.Executable()
	require.NoError(t, err)
	quick := map[string]string{"GORACE": "atexit_sleep_ms=0"}
	w := &world{
		t: t, dir: t.TempDir(), env: e, rows: &rows{all: map[string]domain.Row{}, proxy: px}, workers: &workers{}, issuer: &issuer{all: map[string]bool{}},
		bindings: &bindings{all: map[string]domains.Route{}},
	}
	versions := map[string]app.Program{}
	for _, v := range []string{"1.0", "1.1", "sick"} {
		versions[v] = app.Program{Command: []string{self, "application", v}, Env: quick}
	}
	apps, err := process.Open(process.Config{
		Dir: w.dir, Startup: 40 * time.Second, Grace: 5 * time.Second, Versions: versions,
		Self: []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", self, "run-template"}, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, apps.Close(true)) })
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the certificate of httptest is for another name
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, front.Listener.Addr().String()) // as for every name
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	w.Provider = &platform.Provider{
		Domain: "example.test", Channels: map[string]string{"stable": "1.0", "next": "1.1"}, Sizes: map[string]platform.Size{"small": {StorageBytes: 1 << 20}},
		Table: w.rows, Issuer: w.issuer, Apps: apps, Storage: &storage.ObjectStores{JS: e.JS}, Databases: w.workers, Domains: w.bindings,
		Client: &http.Client{Transport: transport}, Direct: &http.Client{}, Settle: 50 * time.Millisecond, Wait: time.Minute,
	}
	return w
}

// task is what the machine sends: of a session with the slug acme, and its second release while it is upgraded.
func task(session string) machine.Task {
	return machine.Task{
		Task:     database.Task{Session: session, Request: database.RequestBody{EnterpriseID: "acme"}},
		Platform: machine.RequestBody{EnterpriseID: "acme"}, Slug: "acme", Name: "tenant-acme", PrimaryDomain: "acme.example.test",
		Release: &machine.App{Name: "tenant-acme-r1", Version: "1.0"},
	}
}

func (w *world) perform(session, effect string, fence uint64, b machine.Task) machines.Result {
	w.t.Helper()
	fx, _ := machine.Machine.Effect(effect)
	return w.try(session, effect, fence, fx.Retry.Attempts, b) // what fails is not tried again
}

func (w *world) try(session, effect string, fence uint64, try int, b machine.Task) machines.Result {
	w.t.Helper()
	raw, err := json.Marshal(b)
	require.NoError(w.t, err)
	return w.Perform(w.t.Context(), machines.Task{
		Machine: machine.Machine.Name, Namespace: "default", Parent: "acme", ID: session, Effect: effect, Attempt: fmt.Sprintf("%s-%d-%d", effect, fence, try), Try: try, Fence: fence, Data: raw,
	})
}

// twice performs a task two times, as after a crash before its result was stored; both have the same outcome.
func twice[T any](w *world, effect string, fence uint64, b machine.Task) (data T) {
	w.t.Helper()
	first := w.perform("own", effect, fence, b)
	require.Nil(w.t, first.Failure, "%s: %v", effect, first.Failure)
	again := w.perform("own", effect, fence, b)
	require.Nil(w.t, again.Failure, "%s again: %v", effect, again.Failure)
	if effect != "probe" { // which tells how long it took
		require.Equal(w.t, first.Data, again.Data, effect)
	}
	data, _ = first.Data.(T)
	return data
}

// says is what the tenant's domain answers.
func (w *world) says() string {
	w.t.Helper()
	resp, err := w.Client.Get("https://acme.example.test/")
	require.NoError(w.t, err)
	defer resp.Body.Close()
	text := make([]byte, 200)
	n, _ := resp.Body.Read(text)
	return string(text[:n])
}

// nothing fails if something of the tenant is left.
func (w *world) nothing() {
	w.t.Helper()
	row := w.rows.all["acme.example.test"]
	require.Empty(w.t, row.Owner)
	require.Nil(w.t, row.Route)
	_, err := w.env.JS.ObjectStore(w.t.Context(), "tenant-acme")
	require.Error(w.t, err)
	require.Empty(w.t, w.issuer.all)
	require.Empty(w.t, w.bindings.all)
	for _, kept := range []string{"tenants", "logs"} {
		require.NoDirExists(w.t, filepath.Join(w.dir, kept, "default.tenant-acme"))
	}
	homes, err := filepath.Glob(filepath.Join(w.dir, "releases", "*", "home"))
	require.NoError(w.t, errors.Join(err))
	require.Empty(w.t, homes)
}

// ledger is everything that a session may have made.
func ledger(apps ...string) []session.Entry {
	list := []session.Entry{
		{Kind: machine.KindSlug},
		{Kind: machine.KindInstance},
		{Kind: database.KindDatabase},
		{Kind: machine.KindStorage},
		{Kind: machine.KindRoute},
		{Kind: machine.KindDomain},
		{Kind: machine.KindCert},
		{Kind: database.KindRuntime},
	}
	for _, name := range apps {
		list = append(list, session.Entry{Kind: machine.KindApp, Name: name})
	}
	return list
}
