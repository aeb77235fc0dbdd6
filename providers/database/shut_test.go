package database_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// What fails in an undo and may pass is waited for, and nothing is left because of it. A tenant that could not be let in again is seen, also after the last try.
func TestAnUndoIsTriedAgain(t *testing.T) {
	t.Parallel()
	var broken string // what the network does not carry
	left := 0         // times
	fault := func(sql string) databasetest.Fault {
		if broken == "" || left == 0 || !strings.Contains(sql, broken) {
			return databasetest.None
		}
		left--
		return databasetest.Cut
	}
	f := setupFaulty(t, "patient", fault, fault)
	shared := f.rows("")
	f.p.Told = refusesOwn
	f.command("request", `{"enterpriseId":"patient"}`)
	require.Equal(t, machine.Failed, f.e.State)
	databasetest.Exec(t, pg.Address{DSN: f.target.DSN, Database: "tenant_patient"}, `insert into public.settings values ('patient', 'since', 'x')`)

	broken, left = `alter role "tenant_patient" login`, 3
	f.command("rollback", `{}`)
	d := f.e.Data.(*machine.Data)
	require.Equal(t, machine.RollbackStuck, d.Phase)
	require.True(t, strings.Contains(f.all.String(), machine.CodeShut))
	require.ErrorContains(t, f.enter(d.Database.Credentials), "not permitted to log in")
	f.command("rollback", `{}`)
	d = f.e.Data.(*machine.Data)
	require.Contains(t, d.Undone[0].Error, "1 rows of settings")
	require.NoError(t, f.enter(d.Database.Credentials))

	broken, left = "create or replace function", 2
	f.command("rollback", `{"discardWrites":true}`)
	require.Zero(t, left)
	require.Equal(t, machine.RolledBack, f.e.State, "%+v", f.e.Data.(*machine.Data).Undone)
	f.back("patient", "tenant_patient", shared)
}

// A session whose undo has shut the tenant out is resolved as ready: the tenant is let in first, as often as that needs, and the session is not ready before.
func TestATenantThatWasShutOutIsLetInByResolve(t *testing.T) {
	t.Parallel()
	left := 0
	f := setupFaulty(t, "kept", none, func(sql string) databasetest.Fault {
		if left == 0 || !strings.HasPrefix(sql, `alter role "tenant_kept" login`) {
			return databasetest.None
		}
		left--
		return databasetest.Cut
	})
	f.p.Told = refusesOwn
	f.command("request", `{"enterpriseId":"kept"}`)
	require.Equal(t, machine.Failed, f.e.State)
	sealed := f.e.Data.(*machine.Data).Database.Credentials
	databasetest.Exec(t, pg.Address{DSN: f.target.DSN, Database: "tenant_kept"}, `insert into public.settings values ('kept', 'since', 'x')`)
	left = 6
	f.command("rollback", `{}`)
	require.ErrorContains(t, f.enter(sealed), "not permitted to log in")
	f.command("resolve", `{"outcome":"ready"}`)
	require.Zero(t, left)
	require.Equal(t, machine.Failed, f.e.State)
	require.Equal(t, machine.RollbackStuck, f.e.Data.(*machine.Data).Phase)
	f.command("resolve", `{"outcome":"ready"}`)
	require.Equal(t, machine.Ready, f.e.State, "%+v", f.e.Data.(*machine.Data).Undone)
	require.NoError(t, f.enter(sealed))
	require.Equal(t, "dedicated_db tenant_kept 1", f.routing("kept"))

	f.p.Told = nil
	f.command("revert", `{}`)
	require.Equal(t, machine.Ready, f.e.State, "%v", f.e.LastError)
	require.Contains(t, f.e.LastError.Message, "1 rows of settings", "the session has its tenant")
}

// An undo that has shut the tenant out and fails at a later action leaves it out, and the source may have lost what was noted of that: resolve as ready lets the tenant in all the same,
// but only where the routing leads to its database, and no other session has it.
func TestATenantIsLetInWhateverWasNoted(t *testing.T) {
	t.Parallel()
	f := setupFaulty(t, "noted", func(sql string) databasetest.Fault {
		if strings.HasPrefix(sql, "select previous from instar.attempt") {
			return databasetest.Cut
		}
		return databasetest.None
	}, none)
	f.p.Told = refusesOwn
	f.command("request", `{"enterpriseId":"noted"}`)
	require.Equal(t, machine.Failed, f.e.State)
	sealed := f.e.Data.(*machine.Data).Database.Credentials
	f.command("rollback", `{}`)
	d := f.e.Data.(*machine.Data)
	require.Equal(t, machine.RollbackStuck, d.Phase)
	require.True(t, d.Undone[0].Done, "%+v", d.Undone)
	require.ErrorContains(t, f.enter(sealed), "not permitted to log in")

	row := databasetest.Ask(t, f.source, `select to_jsonb(r)::text from public.tenant_runtime r`)
	for _, c := range []struct{ before, after, want string }{
		{`delete from public.tenant_runtime`, `insert into public.tenant_runtime select * from jsonb_populate_record(null::public.tenant_runtime, '` + row + `')`, "does not lead the tenant noted to tenant_noted"},
		{`update instar.attempt set session = 'default.another.db'`, `update instar.attempt set session = 'default.noted.db'`, "session default.another.db has the tenant"},
	} {
		databasetest.Exec(t, f.source, c.before)
		f.command("resolve", `{"outcome":"ready"}`)
		d := f.e.Data.(*machine.Data)
		require.Equal(t, machine.Failed, f.e.State, c.want)
		require.Equal(t, machine.RollbackStuck, d.Phase)
		require.Len(t, d.Undone, 1)
		require.Contains(t, d.Undone[0].Error, c.want)
		require.ErrorContains(t, f.enter(sealed), "not permitted to log in")
		databasetest.Exec(t, f.source, c.after)
	}

	databasetest.Exec(t, f.source, `truncate instar.shut`)
	f.command("resolve", `{"outcome":"ready"}`)
	require.Equal(t, machine.Ready, f.e.State, "%+v", f.e.Data.(*machine.Data).Undone)
	require.NoError(t, f.enter(sealed))
}

// A source that has nothing of what is kept there, and whose routing somebody has mended, is enough to let a tenant in.
func TestATenantIsLetInWhereNothingIsSetUp(t *testing.T) {
	t.Parallel()
	s := setup(t, "bare")
	s.p.Told = refusesOwn
	s.command("request", `{"enterpriseId":"bare"}`)
	require.Equal(t, machine.Failed, s.e.State)
	databasetest.Exec(t, s.p.Source, `drop table instar.attempt, instar.past, instar.shut`)
	s.command("rollback", `{}`)
	require.Equal(t, machine.RollbackStuck, s.e.Data.(*machine.Data).Phase)
	databasetest.Exec(t, pg.Address{DSN: s.p.Server.DSN}, `alter role tenant_bare nologin`)
	s.command("resolve", `{"outcome":"ready"}`)
	require.Equal(t, machine.Ready, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	require.NoError(t, s.enter(s.e.Data.(*machine.Data).Database.Credentials))
}

// The tenant's server goes away after the tenant was shut out there for the comparison, and does not come back while the undo is tried: that is seen, and is no end of it.
func TestATenantThatWasShutOutIsNotForgotten(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	armed, down := false, false
	gone := "" // of the shared database, after that
	f := setupFaulty(t, "away", func(sql string) databasetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if down && gone != "" && strings.Contains(sql, gone) {
			return databasetest.Cut
		}
		return databasetest.None
	}, func(sql string) databasetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if down = down || armed && strings.HasPrefix(sql, `alter role "tenant_away" login`); down {
			return databasetest.Cut
		}
		return databasetest.None
	})
	set := func(a, d bool, lost string) {
		mu.Lock()
		defer mu.Unlock()
		armed, down, gone = a, d, lost
	}
	shared := f.rows("")
	f.command("request", `{"enterpriseId":"away"}`)
	require.Equal(t, machine.Ready, f.e.State, "%v", f.e.LastError)
	sealed := f.e.Data.(*machine.Data).Database.Credentials
	databasetest.Exec(t, pg.Address{DSN: f.target.DSN, Database: "tenant_away"}, `insert into public.settings values ('away', 'since', 'x')`)
	for _, lost := range []string{"", "select exists (select from instar.shut", "coalesce(r.database_host, '')"} { // also when what was noted, or where the tenant is, cannot be read
		set(true, false, lost)
		f.command("revert", `{}`)
		for range 2 { // also when somebody sends rollback before the server is back
			d := f.e.Data.(*machine.Data)
			require.Equal(t, machine.Reverting, f.e.State, "%s: %+v", lost, d.Undone)
			require.Equal(t, machine.RollbackStuck, d.Phase)
			require.ErrorContains(t, f.enter(sealed), "not permitted to log in")
			f.command("rollback", `{}`)
		}
		set(false, false, "")
		f.command("rollback", `{}`)
		require.Equal(t, machine.Ready, f.e.State, "%v", f.e.LastError)
		require.Contains(t, f.e.LastError.Message, "1 rows of settings")
		require.NoError(t, f.enter(sealed))
	}

	// Nothing is shut now: that the server is away ends a revert as it ends others.
	set(false, true, "")
	f.command("revert", `{}`)
	require.Equal(t, machine.Ready, f.e.State, "%v", f.e.LastError)
	set(false, false, "")
	require.NoError(t, f.enter(sealed))
	require.Equal(t, shared, f.rows(""))
}

// An undo may have left a tenant shut out, and noted nothing of it; then the switch was tried again, and has failed. Resolve as ready lets the tenant in from there, too.
func TestATenantIsLetInAfterTheSwitchHasFailedAgain(t *testing.T) {
	t.Parallel()
	s := setup(t, "again")
	s.p.Told = refusesOwn
	s.command("request", `{"enterpriseId":"again"}`)
	require.Equal(t, machine.Failed, s.e.State)
	sealed := s.e.Data.(*machine.Data).Database.Credentials
	databasetest.Exec(t, pg.Address{DSN: s.p.Server.DSN, Database: "tenant_again"}, `insert into public.settings values ('again', 'since', 'x')`)
	s.command("rollback", `{}`)
	require.Equal(t, machine.RollbackStuck, s.e.Data.(*machine.Data).Phase)
	databasetest.Exec(t, pg.Address{DSN: s.p.Server.DSN}, `alter role tenant_again nologin`)
	s.command("retry", `{}`)
	require.Equal(t, machine.Failed, s.e.State)
	require.Equal(t, machine.Held, s.e.Data.(*machine.Data).Phase, "%v", s.e.LastError)
	s.command("resolve", `{"outcome":"ready"}`)
	require.Equal(t, machine.Ready, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	require.NoError(t, s.enter(sealed))
}
