package database_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Rows that the tenant's own database would refuse are named before the fence; those of others are not asked, nor is what holds of all.
func TestRowsThatTheMigrationsRefuseAreNamedBeforeTheFence(t *testing.T) {
	t.Parallel()
	s := setup(t, "strict")
	dir := t.TempDir()
	databasetest.WriteMigrations(t, dir, "00099_strict.sql", `-- +goose Up
alter table public.settings alter value set not null;
alter table public.orders add constraint small check (total < 10), add constraint positive check (total > 0);
create unique index on public.lines (article);
create unique index on public.lines (order_id, article);
create unique index on public.names (lower(name)) where nick is not null;
-- +goose StatementBegin
create function public.fine(text) returns boolean language sql immutable as 'select true';
-- +goose StatementEnd
alter table public.names add constraint fine check (public.fine(nick));
`)
	s.p.Migrations.Files = os.DirFS(dir)
	s.command("request", `{}`)
	d := s.e.Data.(*machine.Data)
	require.Equal(t, []any{machine.Failed, machine.Migrating, "MIGRATIONS_FAILED", 1}, []any{s.e.State, d.FailedFrom, s.e.LastError.Code, d.FailedAttempt}, "%v", s.e.LastError)
	const breaks = "rows of the tenant break what the shared database does not demand: "
	require.Contains(t, s.e.LastError.Message, "3 things of the shared database do not fit into what the migrations make: ")
	require.Contains(t, s.e.LastError.Message, "orders: "+breaks+"check ((total < (10)::numeric))")
	require.Contains(t, s.e.LastError.Message, "lines: "+breaks+"unique (article)")
	require.Contains(t, s.e.LastError.Message, "settings: "+breaks+"value is never null")
	databasetest.Exec(t, s.p.Source, `
		update public.settings set value = 'v' where enterprise_id = 'strict' and value is null; update public.orders set total = 1 where enterprise_id = 'strict';
		update public.lines l set article = concat(order_id, n) from public.orders o where o.id = order_id and enterprise_id = 'strict'`)
	s.command("retry", ``)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
}

// What the migrations lack is named before the tenant's writers are refused for it. It is taken back, or goes on with a migration more.
func TestWhatTheMigrationsLackIsNamedBeforeTheFence(t *testing.T) {
	t.Parallel()
	s := setup(t, "wanting")
	const more = `alter table public.settings add column extra text; alter table public.lines alter n type bigint`
	databasetest.Exec(t, s.p.Source, more+`; alter table public.countries alter name type varchar(90)`)
	failed := func() *machine.Data {
		t.Helper()
		d := s.e.Data.(*machine.Data)
		require.Equal(t, []any{machine.Failed, machine.Migrating, "MIGRATIONS_FAILED", 1}, []any{s.e.State, d.FailedFrom, s.e.LastError.Code, d.FailedAttempt}, "%v", s.e.LastError)
		require.Contains(t, s.e.LastError.Message, "2 things")
		require.Contains(t, s.e.LastError.Message, "settings: it has no column extra")
		require.Contains(t, s.e.LastError.Message, "lines: its column n is integer, and bigint in the shared database")
		return d
	}
	unfenced := func() {
		t.Helper()
		require.Equal(t, "0", databasetest.Ask(t, s.p.Source, `select count(*)::text from pg_trigger where tgname like 'instar%'`))
		databasetest.Exec(t, s.p.Source, `update public.settings set value = 'on' where enterprise_id = 'wanting'`)
	}
	s.command("request", `{}`)
	d := failed()
	unfenced()

	// The shared database may have got a column since the migrations were applied.
	body, err := json.Marshal(machine.Task{Request: d.Request, Database: d.Database})
	require.NoError(t, err)
	r := s.p.Perform(t.Context(), machines.Task{Namespace: "default", Parent: "wanting", ID: "db", Effect: "copy", Fence: s.e.Version, Data: body})
	require.NotNil(t, r.Failure)
	require.Equal(t, "DATA_MIGRATION_FAILED", r.Failure.Code)
	require.Contains(t, r.Failure.Message, "settings: it has no column extra")
	require.False(t, r.Failure.Retryable)
	unfenced()

	// An instance may begin without rows, and its upgrades are not held against the shared database.
	r = s.p.Perform(t.Context(), machines.Task{Machine: "instance_provisioning", Namespace: "default", Parent: "wanting", ID: "db", Effect: "migrate", Fence: s.e.Version, Data: body})
	require.Nil(t, r.Failure)

	s.command("rollback", `{}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	_, err = pg.Connect(t.Context(), s.p.Server.Address("tenant_wanting", ""))
	require.Equal(t, pg.NoDatabase, pg.State(err))

	s.command("request", `{}`)
	failed()
	dir := t.TempDir()
	databasetest.WriteMigrations(t, dir, "00099_more.sql", "-- +goose Up\n"+more+";\n")
	s.p.Migrations.Files = os.DirFS(dir)
	s.command("retry", ``)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
}
