package database_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
)

// beyond is what only the tenant's database has: of the columns, price, data and mark have the value of their default only, and old has none.
const beyond = `
	create domain public.marked as text default 'none';
	alter table public.settings add column mark public.marked, add column note text default 'none', add column price numeric(10,2) default 0, add column data json default '{}', add column made timestamptz default now(), add column n int generated always as identity,
		add column twice text generated always as (value || value) stored, add column old text;
	alter table public.settings alter column old set default 'set later';
	update public.settings set note = 'kept' where key = 'Key 1';
	create table public.trail (line text); insert into public.trail values ('x');
	create table public.hollow (line text);
	create schema reports; create table reports.sums (n int); insert into reports.sums values (1)`

var leftBehind = []string{"column note of settings", "column made of settings", "column n of settings", "table trail", "table reports.sums"}

// What only the tenant's database has refuses no revert, and goes with it: whoever reverts is told by name, before they say what becomes of the rest, and afterwards, whichever try of the undo it was that has looked.
func TestWhatOnlyTheTenantsDatabaseHasIsNamed(t *testing.T) {
	t.Parallel()
	s, target := ready(t, "beyond", "tenant_beyond")
	databasetest.Exec(t, s.p.Source, `create schema elsewhere; create table elsewhere.both (n int); alter table instar.settled drop column left_behind`) // as an earlier version has it
	databasetest.Exec(t, target, beyond+`; create schema elsewhere; create table elsewhere.both (n int); insert into elsewhere.both values (1); create table elsewhere.own (n int); insert into elsewhere.own values (1); insert into public.settings (enterprise_id, key, value) values ('beyond', 'since', 'x')`)
	s.command("revert", `{}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "1 rows of settings")
	require.Contains(t, s.e.LastError.Message, "; what is not compared would be left behind: table elsewhere.own, column note of settings, column made of settings, column n of settings, table trail, table reports.sums")
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	undone := s.e.Data.(*machine.Data).Undone
	require.Equal(t, machine.ActionSettle, undone[0].Action)
	require.Equal(t, append([]string{"table elsewhere.own"}, leftBehind...), undone[0].LeftBehind)
	require.Equal(t, "1", databasetest.Ask(t, s.p.Source, `select count(*)::text from public.settings where enterprise_id = 'beyond' and key = 'since'`))
}

// So it is where a switch has failed, and is rolled back; where it has nothing of its own, nothing is said.
func TestARollbackOfTheRoutingNamesWhatIsLeftBehind(t *testing.T) {
	t.Parallel()
	for tenant, named := range map[string][]string{"more": leftBehind, "same": nil} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			s := untold(t, tenant, `{}`)
			if named != nil {
				databasetest.Exec(t, s.p.Server.Address("tenant_"+tenant, ""), beyond)
			}
			s.command("rollback", `{}`)
			require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
			require.Equal(t, named, s.e.Data.(*machine.Data).Undone[0].LeftBehind)
		})
	}
}

// The tenant waits while they are looked at: one statement reads the first rows for all columns of a table, and another one the rest for those that have no value there.
func TestColumnsOfATableAreLookedAtAtOnce(t *testing.T) {
	t.Parallel()
	s, target := ready(t, "wide", "tenant_wide")
	for _, column := range []string{"a", "b", "c", "d"} {
		databasetest.Exec(t, target, `alter table public.settings add column wide_`+column+` int default 0, add column null_`+column+` int`)
	}
	databasetest.Exec(t, target, `update public.settings set wide_b = 1, wide_d = null where key = 'Key 1'`)
	looks := make(chan string, 10)
	s.p.Server.DSN = databasetest.Through(t, s.p.Server.Address("", ""), func(sql string) databasetest.Fault {
		if strings.Contains(sql, `"wide_`) || strings.Contains(sql, `"null_`) {
			looks <- sql
		}
		return databasetest.None
	}).DSN
	s.command("revert", `{}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	require.Equal(t, []string{"column wide_b of settings"}, s.e.Data.(*machine.Data).Undone[0].LeftBehind)
	require.Len(t, looks, 2)
	require.Contains(t, <-looks, `"wide_b"`)
	require.NotContains(t, <-looks, `"wide_b"`)
}
