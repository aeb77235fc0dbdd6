package database_test

import (
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// What the role of tenants.source.from lacks is told by the plan; with it, a tenant is moved, by a role that may do no more.
func TestTheRoleThatTheTargetReadsBy(t *testing.T) {
	t.Parallel()
	f := setupFaulty(t, "read", none, none)
	reader := "reader_" + strings.ToLower(rand.Text()[:8])
	f.p.From = as(t, f.source.DSN, reader, "")
	databasetest.Exec(t, f.source, `create schema app; create table app.notes (enterprise_id text not null, id int not null, primary key (enterprise_id, id)); grant select on public.settings to `+reader)
	dir := f.t.TempDir()
	databasetest.WriteMigrations(t, dir, "00099_notes.sql", "-- +goose Up\ncreate schema app; create table app.notes (enterprise_id text not null, id int not null, primary key (enterprise_id, id));\n")
	f.p.Migrations.Files = os.DirFS(dir)
	f.p.Catalogue.Schemas = []string{"public", "app"}
	f.command("request", `{"mode":"online"}`)
	require.Equal(t, "PREFLIGHT_FAILED", f.e.LastError.Code)
	for _, give := range []string{"ALTER ROLE " + reader + " REPLICATION", "GRANT USAGE ON SCHEMA app TO " + reader, "GRANT SELECT ON public.orders TO " + reader, "GRANT SELECT ON app.notes TO " + reader} {
		require.Contains(t, f.e.LastError.Message, give)
	}
	require.NotContains(t, f.e.LastError.Message, "public.settings")
	databasetest.Exec(t, f.source, `alter role `+reader+` replication; grant usage on schema app to `+reader+`; grant select on public.orders, public.names, app.notes to `+reader)
	f.command("retry", ``)
	require.Equal(t, machine.Ready, f.e.State, "%v", f.e.LastError)
}

// A copy that Postgres refuses in mode online fails with the tables that are not whole, and does not wait until its time is over.
func TestAnInitialCopyThatIsRefused(t *testing.T) {
	t.Parallel()
	for tenant, sql := range map[string]string{"unread": `revoke select on public.settings from `, "unfit": databasetest.Refused + ` -- `} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			var once sync.Once
			var f *faulty
			reader := "reader_" + strings.ToLower(rand.Text()[:8])
			f = setupFaulty(t, tenant, func(statement string) databasetest.Fault {
				if strings.HasPrefix(statement, "create publication") {
					once.Do(func() { databasetest.Exec(t, f.source, sql+reader) })
				}
				return databasetest.None
			}, none)
			f.p.From, f.p.Patience = as(t, f.source.DSN, reader, "replication"), 3*time.Second
			databasetest.Exec(t, f.source, `grant select on all tables in schema public to `+reader)
			f.command("request", `{"mode":"online"}`)
			f.goesOn(machine.Failed, machine.Ready)
			require.Equal(t, "DATA_MIGRATION_FAILED", f.e.LastError.Code)
			require.Contains(t, f.e.LastError.Message, "failed to copy "+map[string]string{"unread": "settings", "unfit": "orders"}[tenant]+":")
			f.command("rollback", `{}`)
			require.Equal(t, machine.RolledBack, f.e.State, "%+v", f.e.Data.(*machine.Data).Undone)
			f.nothingReplicates()
		})
	}
}

// A row that was written since, and that the tenant's database refuses, fails the comparison, which waits for it.
func TestARowThatIsRefusedWhileItIsCompared(t *testing.T) {
	t.Parallel()
	var once sync.Once
	var f *faulty
	f = setupFaulty(t, "refusing", func(sql string) databasetest.Fault {
		if strings.Contains(sql, "insert into instar.compared") {
			once.Do(func() {
				databasetest.Exec(t, pg.Address{DSN: f.target.DSN, Database: "tenant_refusing"}, `alter table public.settings add constraint no_new check (value <> 'new')`)
				databasetest.Exec(t, f.source, `insert into public.settings values ('refusing', 'since', 'new')`)
			})
		}
		return databasetest.None
	}, none)
	f.command("request", `{"mode":"online"}`)
	f.goesOn(machine.Failed, machine.Ready)
	require.Equal(t, "VERIFICATION_FAILED", f.e.LastError.Code)
	require.Contains(t, f.e.LastError.Message, "refuses what was written")
	require.NoError(t, exec(t, f.source, `update public.settings set value = 'x' where enterprise_id = 'refusing' and key = 'Key 1'`), "it writes on")
}
