package database_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// as makes a role on the server of a DSN, and returns the DSN for it.
func as(t *testing.T, dsn, role, attributes string) string {
	t.Helper()
	databasetest.Exec(t, pg.Address{DSN: dsn}, `create role `+role+` login password 'pw' `+attributes)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "pw")
	return u.String()
}

// Roles that have what the plan asks for, and no more, are enough for all that comes; without it, the plan says what to grant, before anything is made.
func TestTheLeastPrivilegesAreEnough(t *testing.T) {
	t.Parallel()
	s := setup(t, "least")
	random := strings.ToLower(rand.Text()[:8])
	super, server, shared := s.p.Source, suite.Database(t), "shared_"+random // a maintenance database of its own: the other has the register of other tests
	mover := "mover_" + random
	s.p.Server.DSN, s.p.Source.DSN = as(t, server, mover, ""), as(t, super.DSN, shared, "")
	// A template of its own: that of other tests has another owner.
	dir := t.TempDir()
	databasetest.WriteMigrations(t, dir, "00099_least.sql", "-- +goose Up\ncreate table public.least_"+random+" (n int);\n")
	s.p.Migrations.Files = os.DirFS(dir)
	databasetest.Exec(t, super, `
		create table public.tenant_runtime (enterprise_id text primary key, isolation_mode text not null default 'shared', database_id text, database_host text, database_name text,
			status text not null default 'active', updated_at timestamptz not null default now());
		grant select on all tables in schema public to `+shared)

	s.command("request", `{"mode":"online"}`)
	require.Equal(t, "PREFLIGHT_FAILED", s.e.LastError.Code)
	message := s.e.LastError.Message
	for _, give := range []string{
		"ALTER ROLE " + mover + " CREATEDB CREATEROLE", "GRANT CREATE ON DATABASE ", "GRANT pg_signal_backend TO " + mover, "GRANT SET ON PARAMETER session_replication_role TO " + mover,
		"GRANT CREATE ON SCHEMA public TO " + shared, "ALTER ROLE " + shared + " REPLICATION", "OWNER TO " + shared, "public.tenant_runtime", "public.orders",
	} {
		require.Contains(t, message, give)
	}
	require.Equal(t, "0", databasetest.Ask(t, super, `select count(*)::text from pg_namespace where nspname = 'instar'`))

	databasetest.Exec(t, pg.Address{DSN: server}, fmt.Sprintf(`
		alter role %[1]s createdb createrole;
		do $$ begin execute format('grant create on database %%I to %[1]s', current_database()); end $$;
		grant pg_signal_backend to %[1]s;
		grant set on parameter session_replication_role to %[1]s, %[2]s`, mover, shared))
	databasetest.Exec(t, super, fmt.Sprintf(`
		do $$ declare t regclass; begin
			execute format('grant create on database %%I to %[1]s', current_database());
			for t in select c.oid from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') loop execute format('alter table %%s owner to %[1]s', t); end loop;
		end $$;
		grant create on schema public to %[1]s`, shared))
	s.command("rollback", `{}`)
	s.command("request", `{}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	enter := func() pg.Address {
		d := s.e.Data.(*machine.Data)
		c, err := s.p.Keys.Unseal(d.Database.Credentials, "least", d.Database.Name)
		require.NoError(t, err)
		u, err := url.Parse(server)
		require.NoError(t, err)
		u.User, u.Path = url.UserPassword(c.User, c.Password), d.Database.Name
		return pg.Address{DSN: u.String()}
	}
	own := databasetest.Open(t, enter())
	_, err := own.Exec(t.Context(), `insert into public.settings values ('least', 'since', 'x')`)
	require.NoError(t, err)
	s.command("rotate", ``)
	require.NoError(t, exec(t, enter(), `select 1`))
	byHand := databasetest.Open(t, pg.Address{DSN: server, Database: "tenant_least"}) // by another role
	_, err = byHand.Exec(t.Context(), `create table public.hidden (line text);
		alter table public.settings add column sealed int default 0, add column open int default 0;
		revoke select on public.settings from `+mover+`; grant select (enterprise_id, key, value, open) on public.settings to `+mover)
	require.NoError(t, err)
	_, err = byHand.Exec(t.Context(), `create table public.anothers (line text); grant select on public.anothers to `+mover)
	require.NoError(t, err)
	require.NoError(t, byHand.Close(t.Context()))
	databasetest.Exec(t, super, `create table public.anothers (line text)`)
	tables := s.p.Catalogue.Tables
	s.p.Catalogue.Tables = maps.Clone(tables)
	s.p.Catalogue.Tables["anothers"] = catalog.Rule{Kind: catalog.Child}
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "anothers: the catalogue says that it is a child")
	s.p.Catalogue.Tables = tables
	s.revert(`{"keepWrites":true}`)
	databasetest.Exec(t, super, `drop table public.anothers`)
	require.Equal(t, []string{"table anothers, which was not compared", "table hidden", "column sealed of settings"}, s.e.Data.(*machine.Data).Undone[0].LeftBehind, "nobody can say that they are empty")
	require.Error(t, own.Ping(t.Context()), "its connections have ended")
	require.Equal(t, "1", databasetest.Ask(t, super, `select count(*)::text from public.settings where key = 'since'`))

	s.command("request", `{}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	s.command("deprovision", `{"tenant":"least"}`)
	require.Equal(t, machine.Retired, s.e.State, "%v", s.e.LastError)
	gone, err := s.p.Server.Sweep(t.Context(), time.Now().Add(30*24*time.Hour))
	require.NoError(t, err)
	require.Equal(t, []string{"tenant_least", "tenant_least"}, gone)
}
