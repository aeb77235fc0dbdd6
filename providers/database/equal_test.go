package database_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
)

// Values that their types take for equal are not the same: each is a write of the tenant, and comes back.
func TestARevertSeesWhatEqualityDoesNot(t *testing.T) {
	t.Parallel()
	s := setup(t, "scaled")
	const prices = `create collation public.folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false); create extension citext schema public;
		create table public.prices (enterprise_id text not null, id int primary key, price numeric, span interval, doc jsonb, title text collate public.folded, bounds int[], nick public.citext, mood public.colour)`
	databasetest.Exec(t, s.p.Source, prices+`; insert into public.prices select 'scaled', i, 1.5, '30 days', '{"a": 1.0}', 'Title', '{1,2}', 'Nick', 'red' from generate_series(1, 7) i`)
	dir := t.TempDir()
	databasetest.WriteMigrations(t, dir, "00099_prices.sql", "-- +goose Up\n"+prices+";\n")
	s.p.Migrations.Files = os.DirFS(dir)
	s.command("request", `{}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	s.twice = true
	target := s.p.Server.Address("tenant_scaled", "")
	databasetest.Exec(t, target, `update public.prices set price = case id when 1 then 1.50 else price end, span = case id when 2 then interval '1 mon' else span end, doc = case id when 3 then '{"a": 1.00}' else doc end,
		title = case id when 4 then 'TITLE' else title end, bounds = case id when 5 then '[0:1]={1,2}'::int[] else bounds end, nick = case id when 6 then 'NICK' else nick end`)
	want := databasetest.Rows(t, target, "prices", "")
	s.command("revert", `{}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "6 rows of prices")
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	require.Equal(t, want, databasetest.Rows(t, s.p.Source, "prices", ""))
	require.Equal(t, "[0:1]={1,2}", databasetest.Ask(t, s.p.Source, `select bounds::text from public.prices where id = 5`))
}
