package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

func (w *world) connect(as ...nats.Option) *nats.Conn {
	w.T.Helper()
	nc, err := nats.Connect("nats://"+w.Config.NATS.Listen, as...)
	require.NoError(w.T, err)
	w.T.Cleanup(nc.Close)
	return nc
}

// app is the user of an application that resolves tenants, and of nothing else.
var app = embedded.User{Name: "app", Password: "secret", Role: embedded.RoleResolve}

// application connects as an application does that resolves tenants.
func (w *world) application() *tenantdb.DB {
	w.T.Helper()
	js, err := jetstream.NewWithAPIPrefix(w.connect(nats.UserInfo(app.Name, app.Password)), streams.OriginAPI)
	require.NoError(w.T, err)
	raw, err := os.ReadFile(w.Config.Tenants.Keys)
	require.NoError(w.T, err)
	keys, err := secret.Open(raw)
	require.NoError(w.T, err)
	config, err := pgxpool.ParseConfig(w.source.DSN)
	require.NoError(w.T, err)
	db, err := tenantdb.Open(w.T.Context(), tenantdb.Options{JetStream: js, Keys: keys, Shared: config})
	require.NoError(w.T, err)
	w.T.Cleanup(func() { require.NoError(w.T, db.Close()) })
	return db
}

// writer writes as a tenant's application: what the fence refuses is repeated where the tenant is now.
type writer struct {
	db     *tenantdb.DB
	tenant string

	mu      sync.Mutex
	done    []string // what was acknowledged
	longest time.Duration
	last    time.Time
	err     error
}

// write is one transaction over parents, children and grandchildren.
func (w *writer) write(ctx context.Context, n int) error {
	conn, err := w.db.Acquire(ctx, w.tenant)
	if err != nil {
		return err
	}
	defer conn.Release()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(ctx, `insert into public.orders (enterprise_id, total) values ($1, $2) returning id`, w.tenant, n).Scan(&id); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`insert into public.lines values ($1, 1, 'x'), ($1, 2, 'y')`, id)
		b.Queue(`insert into public.remarks values (gen_random_uuid(), $1, 1, 'r')`, id)
		b.Queue(`insert into public.settings values ($1, $2, 'x')`, w.tenant, fmt.Sprint("w", n))
		b.Queue(`update public.lines set article = $2 where order_id = (select min(id) from public.orders where enterprise_id = $1)`, w.tenant, fmt.Sprint("a", n))
		if n%10 == 0 {
			b.Queue(`delete from public.orders where id = $1`, id)
		}
		return tx.SendBatch(ctx, b).Close()
	})
}

func (w *writer) run(ctx context.Context, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for {
			err := w.write(context.WithoutCancel(ctx), n)
			if state := pg.State(err); state == pg.ReadOnly || state == pg.Serialization {
				continue
			}
			w.mu.Lock()
			if w.err = errors.Join(w.err, err); err == nil {
				if now := time.Now(); !w.last.IsZero() {
					w.longest = max(w.longest, now.Sub(w.last))
				}
				w.last, w.done = time.Now(), append(w.done, fmt.Sprint("w", n))
			}
			w.mu.Unlock()
			break
		}
	}
}

func (w *writer) written() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.done)
}

// A tenant is moved online while it and others write; nothing that was acknowledged is lost, and it waits for the switch alone.
func TestATenantIsMovedWhileItWrites(t *testing.T) {
	t.Parallel()
	w := setup(t, 300, "busy")
	databasetest.Exec(t, w.source, `drop table public.events; alter table public.orders replica identity using index orders_tenant;
		create unique index names_tenant on public.names (enterprise_id, name); alter table public.names replica identity using index names_tenant`)
	dir := t.TempDir()
	databasetest.WriteMigrations(t, dir, "00098_without_events.sql", "-- +goose Up\ndrop table public.events;\n")
	w.Config.Tenants.Migrations, w.Config.Tenants.RangeRows = dir, 100
	w.Config.NATS.Users = []embedded.User{app}
	w.Start()
	db := w.application()
	busy, other := &writer{db: db, tenant: "busy"}, &writer{db: db, tenant: "other"}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { busy.run(ctx, 5*time.Millisecond) })
	all.Go(func() { other.run(ctx, 20*time.Millisecond) })
	require.Eventually(t, func() bool { return busy.written() > 50 }, waitFor, tick)

	w.OK("POST", path("busy", "move")+"/request", `{"enterpriseId":"busy","mode":"online"}`)
	w.ends("busy", "move", "ready")
	moved := busy.written()
	require.Eventually(t, func() bool { return busy.written() > moved+20 }, waitFor, tick, "it writes to its own database")
	w.OK("POST", path("busy", "move")+"/rotate", "")
	w.until("busy", "move", "its password is new", func(_ string, data map[string]any) bool { return data["rotatedAt"] != nil })
	moved = busy.written()
	require.Eventually(t, func() bool { return busy.written() > moved+20 }, waitFor, tick, "it writes under the new password")
	stop()
	all.Wait()
	require.NoError(t, busy.err)
	require.NoError(t, other.err)
	t.Logf("the longest wait of %d writes was %s", busy.written(), busy.longest)

	target := w.target("busy")
	require.Equal(t, fmt.Sprint(len(busy.done)), databasetest.Ask(t, target, `select count(*)::text from public.settings where key = any($1::text[])`, busy.done))
	require.Equal(t, fmt.Sprint(300+len(busy.done)), databasetest.Ask(t, target, `select count(*)::text from public.settings`))
	require.Equal(t, "0", databasetest.Ask(t, target, `select count(*)::text from public.lines l where not exists (select from public.orders o where o.id = l.order_id)`))
	require.Equal(t, "0 0", databasetest.Ask(t, target, `select count(*) filter (where l is null) || ' ' || count(*) filter (where r is null) from public.orders o
		left join public.lines l on l.order_id = o.id and l.n = 1 left join public.remarks r on r.order_id = o.id`))
	require.Equal(t, fmt.Sprint(300+len(other.done)), databasetest.Ask(t, w.source, `select count(*)::text from public.settings where enterprise_id = 'other'`))
	require.Equal(t, "0 0", databasetest.Ask(t, w.source, `select (select count(*) from pg_publication) || ' ' || (select count(*) from pg_replication_slots where database = current_database())`))

	w.OK("POST", path("busy", "move")+"/deprovision", `{"tenant":"busy"}`)
	w.ends("busy", "move", "deprovisioned")
	require.Eventually(t, func() bool {
		conn, err := db.Acquire(t.Context(), "busy")
		if err == nil {
			conn.Release()
		}
		return errors.Is(err, tenantdb.ErrClosed)
	}, waitFor, tick, "%s", database.Deprovisioned)
}
