// Package databasetest has what tests of the database provider stand on: a shared database with every kind of table, and a comparison of rows
// that has nothing to do with that of the mover.
package databasetest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/schema"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are those of tenants, and of the shared database.
func Migrations() schema.Set {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the name is a constant
	}
	return schema.Set{Files: sub}
}

// WriteMigrations writes them into a directory, with one more.
func WriteMigrations(t *testing.T, dir, name, sql string) {
	t.Helper()
	require.NoError(t, os.CopyFS(dir, Migrations().Files))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(sql), 0o600))
}

// Catalogue is that of the shared database.
var Catalogue = catalog.Catalogue{Tables: map[string]catalog.Rule{"countries": {Kind: catalog.Reference}, "log": {Kind: catalog.Skip}}}

// Tables are those that are moved.
var Tables = []string{"countries", "events", "lines", "names", "orders", "remarks", "settings"}

// Refused has rows of a shared database be refused by a type of the target that lacks a value of theirs, so that their copy fails, behind the fence.
const Refused = `alter type public.colour rename value 'red' to 'mauve'`

// Config are settings of a cluster that can replicate, and begins to at once: by itself, it starts one subscription in five seconds.
var Config = map[string]string{
	"wal_level": "logical", "max_wal_senders": "40", "max_replication_slots": "40", "max_logical_replication_workers": "20", "max_worker_processes": "40",
	"wal_retrieve_retry_interval": "100ms",
	"autovacuum":                  "off", // a process for each of a hundred databases, in turn
}

// Shared makes a shared database with these tenants, each with so many orders.
func Shared(t *testing.T, suite *postgres.Suite, orders int, tenants ...string) pg.Address {
	t.Helper()
	a := pg.Address{DSN: suite.Copy(t, "shared", func(dsn string) error {
		a := pg.Address{DSN: dsn}
		if err := Migrations().Apply(t.Context(), a, nil); err != nil {
			return err
		}
		conn := Open(t, a)
		_, err := conn.Exec(t.Context(), `insert into public.countries values ('de', 'Germany'), ('fr', 'France')`)
		return errors.Join(err, conn.Close(t.Context()))
	})}
	all := ""
	for _, tenant := range tenants {
		all += fill(tenant, orders)
	}
	Exec(t, a, all)
	return a
}

// fill gives a tenant rows of every kind.
func fill(tenant string, orders int) string {
	return fmt.Sprintf(`
		insert into public.orders (enterprise_id, country, total, note, doc, plain, colours, at)
			select %[1]s, case when i %% 3 = 0 then 'de' end, i * 1.5, case when i %% 10 = 0 then repeat('größe ' || i, 500) else 'it''s \ "quoted"' || i end,
				jsonb_build_object('i', i), json_build_object('b', i), array['red', 'blue']::public.colour[], now() - i * interval '1 hour'
			from generate_series(1, %[2]d) i;
		insert into public.lines select id, n, 'article ' || n from public.orders, generate_series(1, 2) n where enterprise_id = %[1]s;
		insert into public.remarks select gen_random_uuid(), order_id, n, 'remark' from public.lines join public.orders on id = order_id where enterprise_id = %[1]s and n = 1;
		insert into public.settings select %[1]s, 'Key ' || i, case when i %% 2 = 0 then 'v' end from generate_series(1, %[2]d) i;
		insert into public.names select %[1]s || case i %% 3 when 0 then 'a-' when 1 then 'B' else 'ä' end || i, %[1]s, left(%[1]s, 8) || i from generate_series(1, %[2]d) i;
		insert into public.events (enterprise_id, at, body) select %[1]s, date '2010-01-01' + i * 37, 'body' from generate_series(1, %[2]d) i;`, pg.Literal(tenant), orders)
}

// Exec runs statements.
func Exec(t *testing.T, a pg.Address, sql string, args ...any) {
	t.Helper()
	conn := take(t, a)
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
	give(t, a, conn)
}

// Ask returns one text.
func Ask(t *testing.T, a pg.Address, sql string, args ...any) (text string) {
	t.Helper()
	conn := take(t, a)
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&text))
	give(t, a, conn)
	return text
}

// Open opens a connection, which ends with the test.
func Open(t *testing.T, a pg.Address) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(a.DSN)
	require.NoError(t, err)
	if a.Database != "" {
		config.Database = a.Database
	}
	config.RuntimeParams["timezone"] = "UTC"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// rowsOf are conditions of a tenant's rows, written by hand.
var rowsOf = map[string]string{
	"countries": "true", "orders": "enterprise_id = $1", "settings": "enterprise_id = $1", "names": "enterprise_id = $1", "events": "enterprise_id = $1",
	"lines":   "order_id in (select id from public.orders where enterprise_id = $1)",
	"remarks": "order_id in (select id from public.orders where enterprise_id = $1)",
}

// Rows are the rows of a tenant in a table, as texts in order; of all tenants when it is empty.
func Rows(t *testing.T, a pg.Address, table, tenant string) []string {
	t.Helper()
	conn := take(t, a)
	defer give(t, a, conn)
	return rows(t, conn, table, tenant)
}

func rows(t *testing.T, conn *pgx.Conn, table, tenant string) []string {
	t.Helper()
	where, args := "true", []any{}
	if tenant != "" && rowsOf[table] != "true" {
		where, args = rowsOf[table], []any{tenant}
	}
	found, err := conn.Query(t.Context(), fmt.Sprintf(`select to_json(r)::text from public.%s r where %s order by 1`, table, where), args...)
	require.NoError(t, err)
	list, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

// Same requires that the target has exactly the tenant's rows of the source.
func Same(t *testing.T, source, target pg.Address, tenant string) {
	t.Helper()
	wants, gets := Of(t, source, tenant), Of(t, target, "")
	for _, table := range Tables {
		want, got := wants[table], gets[table]
		if strings.Join(want, "\n") != strings.Join(got, "\n") {
			require.Equal(t, want, got, "table %s", table)
		}
	}
}

// Everything is the whole content of a shared database, to see that nothing of it changes.
func Everything(t *testing.T, a pg.Address) map[string][]string {
	t.Helper()
	return Of(t, a, "")
}

// Of are the rows of a tenant, or of all when it is empty, in the tables that there are.
func Of(t *testing.T, a pg.Address, tenant string) map[string][]string {
	t.Helper()
	conn := take(t, a)
	defer give(t, a, conn)
	all := map[string][]string{}
	for _, table := range Tables {
		var there bool
		require.NoError(t, conn.QueryRow(t.Context(), `select to_regclass('public.' || $1) is not null`, table).Scan(&there))
		if there {
			all[table] = rows(t, conn, table, tenant)
		}
	}
	return all
}

// AwaitLock returns when a statement that is like query (as LIKE of SQL has it) waits for a lock in the database.
func AwaitLock(t *testing.T, a pg.Address, query string) {
	t.Helper()
	watcher := Open(t, a)
	require.Eventually(t, func() bool {
		var waits bool
		require.NoError(t, watcher.QueryRow(t.Context(), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like $1)`, query).Scan(&waits))
		return waits
	}, 20*time.Second, 2*time.Millisecond, "nothing like %s waits for a lock", query)
}
