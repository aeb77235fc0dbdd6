package database_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// A tenant that somebody has led by hand to a database which is not its session's, also one of the same name on another server, is not led back to old rows, nor closed: its row is not the session's.
func TestATenantThatWasLedElsewhereByHandStaysThere(t *testing.T) {
	t.Parallel()
	for tenant, database := range map[string]string{"third": "other", "twin": "tenant_twin"} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			s, _ := ready(t, tenant, "tenant_"+tenant)
			row := func() string {
				return databasetest.Ask(t, s.p.Source, `select to_jsonb(r)::text from public.tenant_runtime r where enterprise_id = $1`, tenant)
			}
			databasetest.Exec(t, s.p.Source, `update public.tenant_runtime set database_id = 't2/' || $2, database_name = $2, epoch = epoch + 1 where enterprise_id = $1`, tenant, database)
			led, writes := row(), `update public.settings set value = 'x' where enterprise_id = `+pg.Literal(tenant)
			stays := func(why string) {
				t.Helper()
				require.Contains(t, why, "leads the tenant "+tenant+" to ")
				require.Equal(t, led, row())
				require.Equal(t, pg.ReadOnly, pg.State(exec(t, s.p.Source, writes)), "its rows in the shared database are old")
			}
			s.command("revert", `{}`)
			require.Equal(t, machine.Ready, s.e.State)
			stays(s.e.LastError.Message)
			again := s.e
			s.command("deprovision", `{"tenant":"`+tenant+`"}`)
			require.Equal(t, machine.RollbackStuck, s.e.Data.(*machine.Data).Phase)
			stays(s.e.Data.(*machine.Data).Undone[0].Error)
			again.Version = s.e.Version
			s.e = again
			s.command("revert", `{"discardWrites":true}`)
			require.Equal(t, machine.RollbackStuck, s.e.Data.(*machine.Data).Phase)
			stays(s.e.Data.(*machine.Data).Undone[0].Error)

			databasetest.Exec(t, s.p.Source, `update public.tenant_runtime set isolation_mode = 'shared', database_id = null, database_host = null, database_name = null, epoch = epoch + 1 where enterprise_id = $1`, tenant)
			s.command("rollback", `{}`)
			require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
			require.NoError(t, exec(t, s.p.Source, writes))
		})
	}
}

// What is taken back of a move that has not come to its switch leaves the fence where the tenant is in another database by now: it keeps the old rows.
func TestTheFenceOfATenantThatIsElsewhereStays(t *testing.T) {
	t.Parallel()
	s := setup(t, "away")
	s.p.Told = refusesOwn
	s.command("request", `{}`)
	require.Equal(t, machine.Failed, s.e.State)
	databasetest.Exec(t, s.p.Source, `update public.tenant_runtime set database_id = 't2/other', database_name = 'other', epoch = epoch + 1 where enterprise_id = 'away'`)
	s.twice = true
	s.command("rollback", `{"skip":["settle_writes","restore_tenant_runtime","invalidate_cache"]}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	undone := s.e.Data.(*machine.Data).Undone
	at := slices.IndexFunc(undone, func(r machine.ActionResult) bool { return r.Action == machine.ActionLift })
	require.True(t, undone[at].Skipped, "%+v", undone)
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, s.p.Source, `update public.settings set value = 'x' where enterprise_id = 'away'`)))
	left, err := s.p.SharedLeftovers(t.Context(), func(string) bool { return false })
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(left, func(l database.Leftover) bool { return l.Kind == "fence" }), "it is where it is to be: %+v", left)
}

// A tenant that is in its database without a session that is known, as after a restore of the store, passes the plan, and is taken over by a session of the same name.
func TestATenantThatIsInItsDatabaseIsTakenOver(t *testing.T) {
	t.Parallel()
	s, _ := ready(t, "orphan", "tenant_orphan")
	s.twice = false
	lost := s.e.Version
	again := func(body string) {
		t.Helper()
		s.e = machine.Machine.New("default", "orphan", "db")
		s.e.Version = lost
		s.command("request", body)
		lost = s.e.Version
	}
	again(`{"dryRun":true}`)
	require.Equal(t, machine.Cancelled, s.e.State, "%v", s.e.LastError)
	again(`{}`)
	require.Equal(t, machine.Failed, s.e.State)
	require.Equal(t, "DB_ALLOCATION_FAILED", s.e.LastError.Code)
	require.Contains(t, s.e.LastError.Message, "resolve as ready")
	s.command("resolve", `{"outcome":"ready"}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	require.Equal(t, "dedicated_db tenant_orphan", s.runtime())
}
