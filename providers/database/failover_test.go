package database_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	programs "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// standby is a server that follows another one.
func standby(t *testing.T, of *postgres.Cluster) *postgres.Cluster {
	t.Helper()
	program := filepath.Join(of.Bin(), "pg_basebackup")
	if _, err := os.Stat(program); err != nil {
		t.Skip("pg_basebackup is not here")
	}
	dir, err := os.MkdirTemp("", "instar-standby-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	out, err := programs.CommandContext(t.Context(), program, "--pgdata", filepath.Join(dir, "data"), "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname", of.DSN("postgres")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	old := databasetest.Ask(t, pg.Address{DSN: of.DSN("postgres")}, `select current_setting('data_directory')`)
	word, err := os.ReadFile(filepath.Join(filepath.Dir(old), "password"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "password"), word, 0o600))
	info, err := os.Stat(old)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(owner.Uid), int(owner.Gid)))
	}))
	config := maps.Clone(failing.Config)
	for _, name := range []string{"max_connections", "max_prepared_transactions", "fsync"} { // no less than the first one has
		config[name] = databasetest.Ask(t, pg.Address{DSN: of.DSN("postgres")}, `select current_setting($1)`, name)
	}
	c, err := postgres.Start(t.Context(), postgres.Options{Dir: dir, Config: config})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return c
}

// host is where a cluster listens.
func host(t *testing.T, c *postgres.Cluster) string {
	t.Helper()
	u, err := url.Parse(c.DSN("postgres"))
	require.NoError(t, err)
	return u.Host
}

// The source is killed in the middle of the copy, and its standby takes over under its name. That has the fence, and none of the slots: the session goes on there, and no row is lost.
func TestTheSourceFailsOverDuringTheCopy(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"offline", "online"} {
		t.Run(mode, func(t *testing.T) {
			tenant := "failed-over-" + mode
			s := setupIn(t, &failing, tenant)
			first, before := failing.Cluster(t), s.p.Source
			f := &faulty{session: s, source: before, target: pg.Address{DSN: s.p.Server.DSN}}
			t.Cleanup(func() { // the slots that have stayed there have the names of the next run
				require.NoError(t, first.Restart(context.Background()))
				conn, err := pg.Connect(context.Background(), before)
				require.NoError(t, err)
				defer pg.Close(conn)
				_, err = conn.Exec(context.Background(), `select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()`)
				require.NoError(t, err)
			})
			second := standby(t, first)
			var now atomic.Value
			now.Store(host(t, first))
			shared := f.rows("")
			s.p.Source = databasetest.ThroughTo(t, s.p.Source, none, func() string { return now.Load().(string) })
			s.p.From = s.p.Source.DSN
			var once sync.Once
			var failed error
			s.p.Server.DSN = databasetest.Through(t, f.target, func(sql string) databasetest.Fault {
				if strings.HasPrefix(sql, `copy "public"."lines" (`) {
					once.Do(func() { failed = takeOver(t.Context(), first, second); now.Store(host(t, second)) })
				}
				return databasetest.None
			}).DSN
			f.command("request", fmt.Sprintf(`{"mode":%q}`, mode))
			f.goesOn(machine.Ready, machine.Failed)
			require.NoError(t, failed)
			require.Zero(t, first.PID(), "it has failed over")
			u, err := url.Parse(f.source.DSN)
			require.NoError(t, err)
			f.source.DSN = second.DSN(strings.TrimPrefix(u.Path, "/"))
			f.moved(tenant, "tenant_"+strings.ReplaceAll(tenant, "-", "_"), shared)
			require.Equal(t, pg.ReadOnly, pg.State(exec(t, f.source, fmt.Sprintf(`update public.settings set value = 'x' where enterprise_id = %s`, pg.Literal(tenant)))))
		})
	}
}

// takeOver kills a server once its standby has all that it has committed, and makes that the source.
func takeOver(ctx context.Context, first, second *postgres.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	from, err := pg.Connect(ctx, pg.Address{DSN: first.DSN("postgres")})
	if err != nil {
		return err
	}
	defer pg.Close(from)
	to, err := pg.Connect(ctx, pg.Address{DSN: second.DSN("postgres")})
	if err != nil {
		return err
	}
	defer pg.Close(to)
	var at string
	if err := from.QueryRow(ctx, `select pg_current_wal_flush_lsn()::text`).Scan(&at); err != nil {
		return err
	}
	for there := false; !there; {
		if err := to.QueryRow(ctx, `select pg_last_wal_replay_lsn() >= $1::text::pg_lsn`, at).Scan(&there); err != nil {
			return err
		}
	}
	if err := first.Kill(); err != nil {
		return err
	}
	_, err = to.Exec(ctx, `select pg_promote()`)
	return err
}

// unfence removes the fences of all tenants, as a failover to a standby that followed from afar does.
const unfence = `do $$ declare f regprocedure; begin
	for f in select p.oid from pg_proc p where proname like 'fence\_%' and pronamespace = 'instar'::regnamespace loop execute format('drop function %s cascade', f); end loop; end $$`

// A source that has failed over since the comparison may lack the fence: nothing is switched, and a retry compares again what was written since.
func TestNothingIsSwitchedWithoutTheFence(t *testing.T) {
	t.Parallel()
	var f *faulty
	var once sync.Once
	f = setupFaulty(t, "overtaken", none, func(sql string) databasetest.Fault {
		if strings.Contains(sql, "setval") { // after the comparison
			once.Do(func() {
				if err := errors.Join(exec(f.t, f.source, unfence), exec(f.t, f.source, `insert into public.settings values ('overtaken', 'since', 'x')`)); err != nil {
					t.Error(err)
				}
			})
		}
		return databasetest.None
	})
	f.command("request", `{"mode":"offline"}`)
	f.goesOn(machine.Ready, machine.Failed)
	require.Equal(t, machine.Failed, f.e.State)
	require.Equal(t, machine.CodeUnfenced, f.e.LastError.Code, "%v", f.e.LastError)
	require.Contains(t, f.e.LastError.Message, `"public"."settings"`)
	require.Equal(t, "none", f.runtime())
	shared := f.rows("")
	require.Equal(t, machine.Verifying, f.e.Data.(*machine.Data).FailedFrom, "where a retry begins")
	f.command("retry", ``)
	f.goesOn(machine.Ready, machine.Failed)
	f.moved("overtaken", "tenant_overtaken", shared)
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, f.source, `update public.settings set value = 'y' where enterprise_id = 'overtaken'`)))
}

// A source that has failed over after the copy, to a standby that followed it from afar, may lack the fence: it rises again before the comparison, which finds what was written meanwhile.
func TestTheFenceRisesAgainBeforeTheComparison(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	full.Store(true)
	f := setupFaulty(t, "unfenced", none, func(sql string) databasetest.Fault {
		if full.Load() && strings.Contains(sql, "hash_record") {
			return databasetest.Full
		}
		return databasetest.None
	})
	f.command("request", `{"mode":"offline"}`)
	f.goesOn(machine.Failed)
	require.Equal(t, machine.Verifying, f.e.Data.(*machine.Data).FailedFrom, "%v", f.e.LastError)
	const write = `insert into public.settings values ('unfenced', 'since', 'x')`
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, f.source, write)))
	databasetest.Exec(t, f.source, unfence)
	databasetest.Exec(t, f.source, write)
	shared := f.rows("")
	full.Store(false)
	f.command("retry", ``)
	f.goesOn(machine.Ready, machine.Failed)
	f.moved("unfenced", "tenant_unfenced", shared)
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, f.source, `update public.settings set value = 'y' where enterprise_id = 'unfenced'`)))
}
