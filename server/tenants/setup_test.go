package tenants_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/servertest"
)

const migrations = "../../providers/database/databasetest/migrations"

// world is a server in a process of its own, with a shared database and a server for those of tenants.
type world struct {
	servertest.Process
	source pg.Address
}

// setup makes databases and a configuration; Start runs the server.
func setup(t *testing.T, orders int, names ...string) *world {
	t.Helper()
	w := &world{Process: servertest.Process{T: t}, source: databasetest.Shared(t, &shared, orders, names...)}
	w.Config = config.Defaults(config.Dev)
	w.Config.Data, w.Config.HTTP.Listen, w.Config.NATS.Listen, w.Config.Log.Level = t.TempDir(), "127.0.0.1:0", fmt.Sprint("127.0.0.1:", servertest.Port(t)), "warn"
	w.Config.Tenants = config.Tenants{
		Source:     config.TenantSource{DSN: w.source.DSN},
		Servers:    []config.TenantServer{{Name: "t1", DSN: own.Cluster(t).DSN("postgres")}},
		Keys:       filepath.Join(t.TempDir(), "keys.json"),
		Migrations: migrations,
		Tables:     map[string]config.TenantTable{"countries": {Kind: "reference"}, "log": {Kind: "skip"}},
		RangeRows:  10,
	}
	t.Cleanup(func() { w.forget(names) }) // once the server has gone
	return w
}

// forget takes away what the server for databases of tenants has of them, so that the next run of a test finds it as the first one did.
func (w *world) forget(names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // that of the test has ended
	defer cancel()
	own := pg.Address{DSN: own.Cluster(w.T).DSN("postgres")}
	conn, err := pg.Connect(ctx, own)
	require.NoError(w.T, err)
	defer pg.Close(conn)
	for i, name := range names {
		names[i] = "tenant_" + strings.ReplaceAll(name, "-", "_")
	}
	pairs := func(sql string) (list [][2]string) {
		rows, err := conn.Query(ctx, sql, names)
		require.NoError(w.T, err)
		var p [2]string
		_, err = pgx.ForEachRow(rows, []any{&p[0], &p[1]}, func() error { list = append(list, p); return nil })
		if !pg.NotSetUp(err) { // nothing was made
			require.NoError(w.T, err)
		}
		return list
	}
	for _, at := range pairs(`select datname, subname from pg_subscription join pg_database d on d.oid = subdbid where datname = any($1)`) { // of a session that has not ended
		in, err := pg.Connect(ctx, pg.Address{DSN: own.DSN, Database: at[0]})
		require.NoError(w.T, err)
		name := pg.Ident(at[1])
		_, err = in.Exec(ctx, fmt.Sprintf(`alter subscription %[1]s disable; alter subscription %[1]s set (slot_name = none); drop subscription %[1]s`, name))
		require.NoError(w.T, err)
		pg.Close(in)
	}
	for _, at := range append(pairs(`select datname, '' from pg_database where datname = any($1)`), pairs(`select stored_as, '' from instar.put_away where name = any($1)`)...) {
		_, err := conn.Exec(ctx, fmt.Sprintf(`drop database if exists %s with (force)`, pg.Ident(at[0])))
		require.NoError(w.T, err)
	}
	for _, table := range []string{"put_away", "tenant_past", "tenant_database"} {
		if _, err := conn.Exec(ctx, `delete from instar.`+table+` where name = any($1)`, names); !pg.NotSetUp(err) {
			require.NoError(w.T, err)
		}
	}
}

func (w *world) target(tenant string) pg.Address {
	return pg.Address{DSN: own.Cluster(w.T).DSN("postgres"), Database: "tenant_" + strings.ReplaceAll(tenant, "-", "_")}
}

// path is that of a session.
func path(tenant, id string) string { return "/v1/tenants/" + tenant + "/database_provisionings/" + id }

// until reads the session until it is as wanted.
func (w *world) until(tenant, id, what string, holds func(state string, data map[string]any) bool) (data map[string]any) {
	w.T.Helper()
	var last map[string]any
	defer func() {
		if w.T.Failed() {
			w.T.Log(last)
		}
	}()
	require.Eventually(w.T, func() bool {
		_, last = w.Do("GET", path(tenant, id), "")
		state, _ := last["state"].(string)
		data, _ = last["data"].(map[string]any)
		return holds(state, data)
	}, 3*time.Minute, 50*time.Millisecond, what)
	return data
}

func (w *world) ends(tenant, id, state string) map[string]any {
	w.T.Helper()
	return w.until(tenant, id, "it is "+state, func(s string, _ map[string]any) bool { return s == state })
}

const (
	waitFor = time.Minute
	tick    = 20 * time.Millisecond
)
