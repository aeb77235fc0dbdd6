// Package platform is the demo of instances: three tenants get some of their own. platformDemo.run goes through the acts; parts.go has the server, the application and the
// certificate authority.
package platform

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/cmd/instar/demo"
	"github.com/bcc94042/instar/internal/authority"
	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers/database/admin"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/server/domains"
	instances "github.com/bcc94042/instar/server/platform"
	"github.com/bcc94042/instar/streams"
)

type platformDemo struct {
	out   io.Writer
	began time.Time

	dir, url, proxy, nats string
	cluster               *postgres.Cluster
	shared                string
	ca                    *authority.Authority
	server                *demo.Process
	client                *http.Client
}

func newPlatformDemo(out io.Writer) *platformDemo { return &platformDemo{out: out, began: time.Now()} }

var platformTenants = []string{"ann", "ben", "cleo"}

func (d *platformDemo) tell(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *platformDemo) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	defer func() { err = errors.Join(err, d.close()) }()
	for _, act := range []func(context.Context) error{d.setup, d.provision, d.upgrade, d.breaks, d.leave} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *platformDemo) close() error {
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if d.server != nil && d.server.PID() != 0 {
		err = d.server.End(ctx)
	}
	if d.client != nil {
		d.client.CloseIdleConnections()
	}
	if d.ca != nil {
		d.ca.Close()
	}
	if d.cluster != nil {
		err = errors.Join(err, d.cluster.Stop(ctx))
	}
	if d.dir != "" {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}

func (d *platformDemo) setup(ctx context.Context) (err error) {
	if d.dir, d.cluster, err = demo.Postgres(ctx, demo.Logical); err != nil {
		return err
	}
	if d.shared, err = d.cluster.Database(ctx); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, d.shared)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, strings.TrimPrefix(demo.TenantSchema, "-- +goose Up\n"))
	migrations := filepath.Join(d.dir, "migrations")
	err = errors.Join(err, conn.Close(ctx), os.MkdirAll(migrations, 0o700))
	if err == nil {
		err = os.WriteFile(filepath.Join(migrations, "00001_tables.sql"), []byte(demo.TenantSchema), 0o600)
	}
	if err != nil {
		return err
	}
	address, err := demo.FreeAddress()
	if err != nil {
		return err
	}
	if d.proxy, err = demo.FreeAddress(); err != nil {
		return err
	}
	if d.nats, err = demo.FreeAddress(); err != nil {
		return err
	}
	_, text, err := net.SplitHostPort(d.proxy)
	port, bad := strconv.Atoi(text)
	if err := errors.Join(err, bad); err != nil {
		return err
	}
	if d.ca, err = authority.Start(authority.Options{HTTPPort: port, TLSPort: port, Good: 24 * time.Hour}, filepath.Join(d.dir, "ca.pem")); err != nil {
		return err
	}
	return d.serve(ctx, address)
}

func (d *platformDemo) serve(ctx context.Context, address string) error {
	d.url = "http://" + address
	log := filepath.Join(d.dir, "server.log")
	env := []string{sharedEnv + "=" + d.shared, ownEnv + "=" + d.cluster.DSN("postgres"), acmeEnv + "=" + d.ca.URL}
	server, err := demo.Start(log, env, "demo", "platform-server", d.dir, address, d.proxy, d.nats)
	if err != nil {
		return err
	}
	d.server = server
	if err := demo.Await(ctx, "the server", func() error { return demo.Ask(ctx, http.MethodGet, d.url+"/readyz", nil, nil) }); err != nil {
		return fmt.Errorf("%w: %s", err, demo.LastWords(log))
	}
	d.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: d.ca.Roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, d.proxy)
		},
	}}
	d.tell("Postgres runs as process %d, the server as process %d, and a certificate authority in this one", d.cluster.PID(), d.server.PID())
	return nil
}

// platformSession is what the demo reads of a session.
type platformSession struct {
	State     string            `json:"state"`
	Data      machine.Data      `json:"data"`
	LastError *machines.Failure `json:"lastError"`
}

func (d *platformDemo) send(ctx context.Context, tenant, command string, body any) error {
	return demo.Ask(ctx, http.MethodPost, d.url+"/v1/tenants/"+tenant+"/instance_provisionings/own/"+command, body, nil)
}

// becomes follows a session to a state in which nothing is under way.
func (d *platformDemo) becomes(ctx context.Context, tenant, state string) (*platformSession, error) {
	for {
		s := &platformSession{}
		if err := demo.Ask(ctx, http.MethodGet, d.url+"/v1/tenants/"+tenant+"/instance_provisionings/own", nil, s); err != nil {
			return nil, err
		}
		switch {
		case s.State == state:
			return s, nil
		case s.State == machine.Failed && s.Data.Phase == session.Held, s.Data.Phase == session.RollbackStuck:
			return nil, fmt.Errorf("the session of %s is %s from %s: %w", tenant, s.State, s.Data.FailedFrom, errors.New(s.LastError.Message))
		}
		if err := wait.Pause(ctx, 50*time.Millisecond); err != nil {
			return nil, fmt.Errorf("the session of %s is %s (%s): %w", tenant, s.State, s.Data.Phase, err)
		}
	}
}

// order opens the application of a tenant through the proxy, and writes an order there, which is to be this one of the tenant.
func (d *platformDemo) order(ctx context.Context, tenant, version string, n int) error {
	want := fmt.Sprintf("version %s of %s: %d orders in tenant_%[2]s, %[3]d receipts in tenant-%[2]s", version, tenant, n)
	host := tenant + "." + platformDomain
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+host+"/", nil)
	if err != nil {
		return err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	d.tell("an order is sent to https://%s, which answers: %s", host, text)
	if string(text) != want {
		return fmt.Errorf("https://%s is to say %q", host, want)
	}
	return nil
}

func (d *platformDemo) provision(ctx context.Context) error {
	for _, name := range platformTenants {
		if err := d.send(ctx, name, "request", map[string]any{}); err != nil {
			return err
		}
	}
	for _, name := range platformTenants {
		s, err := d.becomes(ctx, name, machine.Ready)
		if err != nil {
			return err
		}
		d.tell("%s is ready: database %s, bucket %s, process at %s, name %s, certificate %s until %s", name, s.Data.Database.DatabaseID, s.Data.Storage.Bucket, s.Data.App.Address, s.Data.PrimaryDomain,
			s.Data.Certificate.Serial, s.Data.Certificate.NotAfter.Format(time.RFC3339))
	}
	for i, name := range platformTenants {
		for n := 1; n <= i+1; n++ {
			if err := d.order(ctx, name, "1.0", n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *platformDemo) to(ctx context.Context, tenant, version string) (*platformSession, error) {
	if err := d.send(ctx, tenant, "upgrade", map[string]any{"version": version, "weights": []int{50, 100}, "holdSeconds": 1}); err != nil {
		return nil, err
	}
	return d.becomes(ctx, tenant, machine.Ready)
}

func (d *platformDemo) upgrade(ctx context.Context) error {
	s, err := d.to(ctx, "ann", "1.1")
	if err != nil {
		return err
	}
	if s.Data.Version != "1.1" {
		return fmt.Errorf("ann has version %s after the upgrade: %v", s.Data.Version, s.LastError)
	}
	d.tell("ann has version 1.1, process at %s", s.Data.App.Address)
	return d.order(ctx, "ann", "1.1", 2)
}

func (d *platformDemo) breaks(ctx context.Context) error {
	s, err := d.to(ctx, "ben", "broken")
	if err != nil {
		return err
	}
	if s.Data.Version != "1.0" || s.LastError == nil {
		return fmt.Errorf("ben has version %s, and was to keep 1.0", s.Data.Version)
	}
	d.tell("ben's next version was withdrawn: %s: %s", s.LastError.Code, s.LastError.Message)
	return d.order(ctx, "ben", "1.0", 3)
}

// nothingStored looks for what JetStream has of a tenant: the bucket and keys to it, the name and where it leads, and the certificate.
func (d *platformDemo) nothingStored(ctx context.Context, tenant string) error {
	nc, err := nats.Connect(d.nats)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.Stream(ctx, "OBJ_tenant-"+tenant); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return errors.Join(err, fmt.Errorf("the bucket of %s is there", tenant))
	}
	keys, err := js.KeyValue(ctx, instances.StorageKeysBucket)
	if err != nil {
		return err
	}
	if row, err := keys.Get(ctx, "tenant-"+tenant); err != nil || strings.Contains(string(row.Value()), "keys") {
		return errors.Join(err, fmt.Errorf("a key of %s is there", tenant))
	}
	table, err := js.KeyValue(ctx, domains.RoutesBucket)
	if err != nil {
		return err
	}
	value, err := table.Get(ctx, tenant+"."+platformDomain)
	var row domain.Row
	if err == nil {
		err = json.Unmarshal(value.Value(), &row)
	}
	if err != nil || row.Owner != "" || row.Route != nil {
		return errors.Join(err, fmt.Errorf("the name of %s is still that of %s", tenant, row.Owner))
	}
	stored, _, err := streams.Subjects(ctx, nc, streams.BucketStream(domains.CertificatesBucket), ">", 0)
	for key := range stored {
		if strings.Contains(key, tenant) {
			err = errors.Join(err, fmt.Errorf("a part of the certificate of %s is stored: %s", tenant, key))
		}
	}
	return err
}

// dropped looks where a database was put aside, and has it dropped as the server's hourly sweep does when tenants.grace is over.
func (d *platformDemo) dropped(ctx context.Context, name string) (err error) {
	dsn := d.cluster.DSN("postgres")
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var aside string
	if err := conn.QueryRow(ctx, `select stored_as from instar.put_away where name = $1`, name).Scan(&aside); err != nil {
		return fmt.Errorf("the database %s is not put aside: %w", name, err)
	}
	d.tell("the database %s is put aside as %s, where nobody gets in, to be dropped in 7 days (tenants.grace); the sweep of then is made now", name, aside)
	if _, err := (&admin.Server{Name: "own", DSN: dsn}).Sweep(ctx, time.Now().Add(8*24*time.Hour)); err != nil {
		return err
	}
	left := true
	err = conn.QueryRow(ctx, `select exists (select from pg_database where datname in ($1, $2)) or exists (select from pg_roles where rolname = $1)`, name, aside).Scan(&left)
	if err == nil && left {
		err = fmt.Errorf("the database %s, %s or its role is still there", name, aside)
	}
	return err
}

// leave closes a tenant, and looks for what is left of it.
func (d *platformDemo) leave(ctx context.Context) error {
	s, err := d.becomes(ctx, "cleo", machine.Ready)
	if err != nil {
		return err
	}
	d.tell("cleo leaves")
	if err := d.send(ctx, "cleo", machine.CommandRetire, map[string]any{"tenant": "cleo"}); err != nil {
		return err
	}
	retired, err := d.becomes(ctx, "cleo", machine.Retired)
	if err != nil {
		return err
	}
	for _, e := range retired.Data.Ledger {
		if e.State != session.Undone {
			return fmt.Errorf("the %s %s of cleo is %s", e.Kind, e.Name, e.State)
		}
	}
	if c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Data.App.Address); err == nil {
		return errors.Join(errors.New("cleo's process is still there"), c.Close())
	}
	left, err := filepath.Glob(filepath.Join(d.dir, "data", "platform", "tenants", "*cleo*"))
	if err != nil || len(left) > 0 {
		return errors.Join(err, fmt.Errorf("directories of cleo are left: %v", left))
	}
	if err := d.dropped(ctx, "tenant_cleo"); err != nil {
		return err
	}
	if err := d.nothingStored(ctx, "cleo"); err != nil {
		return err
	}
	d.client.CloseIdleConnections()
	if err := demo.Await(ctx, "the proxy to forget cleo", func() error {
		if resp, err := d.client.Get("https://cleo." + platformDomain + "/"); err == nil {
			return errors.Join(errors.New("cleo is still served"), resp.Body.Close())
		}
		return nil
	}); err != nil {
		return err
	}
	d.tell("cleo has left: its process, directory, database with its role, bucket, certificate and name are gone, and nothing in its ledger is not taken back; ann and ben are served")
	return d.order(ctx, "ann", "1.1", 3)
}
