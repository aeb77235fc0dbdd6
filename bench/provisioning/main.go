// Command provisioning measures how a tenant gets into a database of its own, on a private Postgres: the rows per second of the mover beside
// other ways of copying the same rows, and, with the program as a process, how long writers wait when a tenant is moved online, how long
// many small tenants take, and what a kill during the copy copies again. Rounds take turns: what counts first is the ratio, and the CPU per row.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/pg"
)

type bench struct {
	dir, binary             string
	rows, rounds            int
	tenants, small, atOnce  int
	perSecond, online, kill int

	cluster *postgres.Cluster
}

func main() {
	b := &bench{}
	flag.StringVar(&b.binary, "binary", "", "measure this `program` instead of one that is built from the source")
	flag.IntVar(&b.rows, "rows", 100_000, "rows of the tenant that is copied; twice as many where that is killed")
	flag.IntVar(&b.rounds, "rounds", 3, "rounds of the copy")
	flag.IntVar(&b.online, "online", 100_000, "rows of the tenant that is moved online")
	flag.IntVar(&b.perSecond, "writes", 500, "writes per second during that")
	flag.IntVar(&b.tenants, "tenants", 100, "small tenants that are moved")
	flag.IntVar(&b.small, "small", 1000, "rows of each of them")
	flag.IntVar(&b.atOnce, "at-once", 4, "of them at a time")
	flag.IntVar(&b.kill, "kills", 3, "kills during a copy")
	only := flag.String("only", "", "run one `part`: copy, online, tenants or kill")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench-provisioning:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, only string) (err error) {
	if b.dir, err = os.MkdirTemp("", "instar-bench-provisioning-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := os.Chmod(b.dir, 0o711); err != nil { // Postgres may run as another user
		return err
	}
	b.cluster, err = postgres.Start(ctx, postgres.Options{Dir: filepath.Join(b.dir, "postgres"), Config: map[string]string{
		"max_wal_size": "4GB", "wal_level": "logical", "max_connections": "200", "max_wal_senders": "20", "max_replication_slots": "20", "max_worker_processes": "40", "max_logical_replication_workers": "20",
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop(context.WithoutCancel(ctx))) }()
	if only != "copy" {
		if b.binary, err = rig.Program(ctx, b.binary, b.dir); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"copy", b.copies}, {"online", b.cutover}, {"tenants", b.many}, {"kill", b.kills}} {
		if only != "" && only != part.name {
			continue
		}
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// schema is that of the shared database, and of each tenant's own: two tables, that two streams of a copy have something to do.
const schema = `-- +goose Up
create table public.orders (id bigint primary key, enterprise_id text not null, at timestamptz not null default now(), total numeric(12,2) not null, note text);
create unique index orders_tenant on public.orders (enterprise_id, id);
alter table public.orders replica identity using index orders_tenant;
create table public.parts (id bigint primary key, enterprise_id text not null, at timestamptz not null default now(), total numeric(12,2) not null, note text);
create unique index parts_tenant on public.parts (enterprise_id, id);
alter table public.parts replica identity using index parts_tenant;
`

// shared makes the database of many tenants: so many rows of each in both tables, one after the other in turns, as they come in life.
func (b *bench) shared(ctx context.Context, rows, first, tenants int) (pg.Address, error) {
	dsn, err := b.cluster.Database(ctx)
	a := pg.Address{DSN: dsn}
	if err != nil {
		return a, err
	}
	fill := ""
	for _, table := range []string{"orders", "parts"} {
		fill += fmt.Sprintf(`; insert into public.%[1]s (id, enterprise_id, total, note) select i, 't' || %[3]d + i %% %[4]d, i %% 1000 * 1.5, 'note ' || repeat(md5(i::text), 3) from generate_series(0, %[2]d - 1) i; analyze public.%[1]s`,
			table, rows/2*tenants, first, tenants)
	}
	return a, apply(ctx, a, schema+fill)
}

func apply(ctx context.Context, a pg.Address, sql string, args ...any) error {
	conn, err := pg.Connect(ctx, a)
	if err != nil {
		return err
	}
	defer pg.Close(conn)
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

func ask(ctx context.Context, a pg.Address, sql string, args ...any) (n int64, err error) {
	conn, err := pg.Connect(ctx, a)
	if err != nil {
		return 0, err
	}
	defer pg.Close(conn)
	err = conn.QueryRow(ctx, sql, args...).Scan(&n)
	return n, err
}
