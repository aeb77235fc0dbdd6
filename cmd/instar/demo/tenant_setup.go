package demo

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/secret"
)

// Logical are the settings of a Postgres that a tenant can be moved out of while it writes.
var Logical = map[string]string{"wal_level": "logical", "max_connections": "100"}

// Postgres starts a private one in a new directory. What it has made by the time of an error is returned with it.
func Postgres(ctx context.Context, settings map[string]string) (dir string, c *postgres.Cluster, err error) {
	if dir, err = os.MkdirTemp("", "instar-demo-"); err != nil {
		return "", nil, err
	}
	// #nosec G302 -- Postgres does not run as root; what is below is closed
	if err := os.Chmod(dir, 0o711); err != nil {
		return dir, nil, err
	}
	c, err = postgres.Start(ctx, postgres.Options{Dir: filepath.Join(dir, "postgres"), Config: settings})
	return dir, c, err
}

// setup starts Postgres, fills the shared database, and starts the server.
func (d *tenantDemo) setup(ctx context.Context) (err error) {
	if d.dir, d.cluster, err = Postgres(ctx, Logical); err != nil {
		return err
	}
	d.tell("Postgres runs as process %d", d.cluster.PID())
	if d.shared, err = d.cluster.Database(ctx); err != nil {
		return err
	}
	if err := d.fill(ctx); err != nil {
		return err
	}
	if err := os.CopyFS(d.dir, tenantMigrations); err != nil {
		return err
	}
	return d.serve(ctx)
}

func (d *tenantDemo) fill(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, d.shared)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the cluster stops later
	if _, err := conn.Exec(ctx, TenantSchema); err != nil {       // its first line is a comment
		return err
	}
	for i := range 10 {
		name := fmt.Sprintf("tenant-%d", i)
		d.names = append(d.names, name)
		_, err := conn.Exec(ctx, `with o as (insert into public.orders (id, enterprise_id, filled) select gen_random_uuid(), $1, true from generate_series(1, $2) returning id)
			insert into public.lines select id, n from o, generate_series(1, 2) n`, name, d.orders)
		if err != nil {
			return err
		}
	}
	d.tell("a database that %d tenants share has %d rows of each", len(d.names), 3*d.orders)
	return nil
}

// straighten removes what changes rows.
func (d *tenantDemo) straighten(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, d.cluster.DSN(database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, `drop trigger bend on public.orders`)
	return err
}

func (d *tenantDemo) serve(ctx context.Context) error {
	address, err := FreeAddress()
	if err != nil {
		return err
	}
	bus, err := FreeAddress()
	if err != nil {
		return err
	}
	d.url = "http://" + address
	d.server = &demoProcess{
		args: []string{"demo", "tenants-server", d.dir, address, bus}, log: filepath.Join(d.dir, "server.log"),
		env: []string{sharedEnv + "=" + d.shared, ownEnv + "=" + d.cluster.DSN("postgres")},
	}
	if err := d.server.start(); err != nil {
		return err
	}
	if err := Await(ctx, "the server", func() error { return Ask(ctx, http.MethodGet, d.url+"/readyz", nil, nil) }); err != nil {
		return fmt.Errorf("%w: %s", err, LastWords(d.server.log))
	}
	d.tell("the server runs as process %d", d.server.PID())
	if d.nc, err = nats.Connect("nats://" + bus); err != nil {
		return err
	}
	js, err := jetstream.New(d.nc)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(d.dir, "keys.json"))
	if err != nil {
		return err
	}
	keys, err := secret.Open(raw)
	if err != nil {
		return err
	}
	shared, err := pgxpool.ParseConfig(d.shared)
	if err != nil {
		return err
	}
	shared.MaxConns = 20
	db, err := tenantdb.Open(ctx, tenantdb.Options{JetStream: js, Keys: keys, Shared: shared, Configure: func(_ string, c *pgxpool.Config) { c.MaxConns = 4 }})
	if err != nil {
		return err
	}
	d.shop = newTenantShop(db)
	return nil
}
