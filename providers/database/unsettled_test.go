package database_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// A row that somebody has led back by hand, or taken away, does not say that what the tenant has written in its own database was brought back: only this session's own comparison does.
func TestARoutingThatWasLedBackByHandIsNotTakenForSettled(t *testing.T) {
	t.Parallel()
	byHand := map[string]string{
		"gone":   `delete from public.tenant_runtime where enterprise_id = 'gone'`,
		"shared": `update public.tenant_runtime set isolation_mode = 'shared', database_id = null, database_host = null, database_name = null where enterprise_id = 'shared'`,
		"next":   `update public.tenant_runtime set isolation_mode = 'shared', database_id = null, database_host = null, database_name = null, epoch = epoch + 1 where enterprise_id = 'next'`,
	}
	for tenant, sql := range byHand {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			s, target := ready(t, tenant, "tenant_"+tenant)
			databasetest.Exec(t, target, `insert into public.settings values (`+pg.Literal(tenant)+`, 'since', 'x')`)
			row := databasetest.Ask(t, s.p.Source, `select to_jsonb(r)::text from public.tenant_runtime r where enterprise_id = $1`, tenant)
			databasetest.Exec(t, s.p.Source, sql)
			for _, body := range []string{`{}`, `{"keepWrites":true}`} {
				s.command("revert", body)
				require.Equal(t, machine.Ready, s.e.State, body)
				require.Contains(t, s.e.LastError.Message, "it cannot be told what the tenant has written")
			}
			require.NoError(t, s.enter(s.e.Data.(*machine.Data).Database.Credentials), "it is let in again")
			left, err := s.p.SharedLeftovers(t.Context(), func(string) bool { return true })
			require.NoError(t, err)
			require.Equal(t, []string{"fence"}, kindsOf(left), "its writers are refused in the database that it is led to: %+v", left)

			databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime where enterprise_id = `+pg.Literal(tenant))
			databasetest.Exec(t, s.p.Source, `insert into public.tenant_runtime select * from jsonb_populate_record(null::public.tenant_runtime, `+pg.Literal(row)+`)`)
			left, err = s.p.SharedLeftovers(t.Context(), func(string) bool { return true })
			require.NoError(t, err)
			require.Empty(t, left)
			s.command("revert", `{"keepWrites":true}`)
			require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
			require.Equal(t, "1", databasetest.Ask(t, s.p.Source, `select count(*)::text from public.settings where enterprise_id = $1 and key = 'since'`, tenant))
		})
	}
}

// Nor does it where the database has gone, too: what was in it is lost, and that is for somebody to say.
func TestARoutingThatWentWithItsDatabaseIsNotTakenForSettled(t *testing.T) {
	t.Parallel()
	s, _ := ready(t, "both", "tenant_both")
	databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime where enterprise_id = 'both'`)
	databasetest.Exec(t, pg.Address{DSN: s.p.Server.DSN}, `drop database tenant_both with (force)`)
	s.command("revert", `{}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "it cannot be told what the tenant has written")
	s.command("revert", `{"discardWrites":true}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
}

// A comparison that was made once says nothing of a later switch of the same session, nor of its next life.
func TestWhatWasSettledOnceIsNotSettledAgain(t *testing.T) {
	t.Parallel()
	s, _ := ready(t, "anew", "tenant_anew")
	s.command("revert", `{}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	s.twice = false
	s.command("request", `{}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime where enterprise_id = 'anew'`)
	s.command("revert", `{}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "it cannot be told what the tenant has written")
}

// Nor of a life in which the tenant was led there by hand, whose role stays out where its database was put away.
func TestWhatWasSettledOnceIsNotSettledInALifeThatWasSwitchedByHand(t *testing.T) {
	t.Parallel()
	s, _ := ready(t, "handed", "tenant_handed")
	row := databasetest.Ask(t, s.p.Source, `select to_jsonb(r)::text from public.tenant_runtime r where enterprise_id = 'handed'`)
	s.command("revert", `{}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	databasetest.Exec(t, s.p.Source, `insert into public.tenant_runtime select * from jsonb_populate_record(null::public.tenant_runtime, `+pg.Literal(row)+`)`)
	s.twice = false
	s.command("request", `{}`)
	require.Equal(t, "DB_ALLOCATION_FAILED", s.e.LastError.Code)
	s.command("resolve", `{"outcome":"ready"}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime where enterprise_id = 'handed'`)
	s.command("revert", `{}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "it cannot be told what the tenant has written")
	require.Equal(t, "false", databasetest.Ask(t, pg.Address{DSN: s.p.Server.DSN}, `select rolcanlogin::text from pg_roles where rolname = 'tenant_handed'`))
}

// A switch that has failed may have led the tenant to its database all the same.
func TestAFailedSwitchThatWasTakenBackByHandIsNotTakenForSettled(t *testing.T) {
	t.Parallel()
	s := untold(t, "half", `{}`)
	databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime where enterprise_id = 'half'`)
	s.command("rollback", `{}`)
	require.Equal(t, machine.RollbackStuck, s.e.Data.(*machine.Data).Phase, s.e.State)
	require.Contains(t, s.e.Data.(*machine.Data).Undone[0].Error, "it cannot be told what the tenant has written")
}

// Applications that were told of the tenant's own database, and of nothing since, may write there: no later life copies over that.
func TestWhereApplicationsMayWriteIsNotCopiedTo(t *testing.T) {
	t.Parallel()
	f := setupFaulty(t, "misled", none, none)
	var last cutover.Runtime
	f.p.Last = func(context.Context, string) (cutover.Runtime, error) { return last, nil }
	f.p.Told = func(ctx context.Context, r database.Route) error {
		last = r.Runtime
		return refusesOwn(ctx, r)
	}
	f.command("request", `{"mode":"offline"}`)
	f.goesOn(machine.Failed)
	require.Equal(t, cutover.Dedicated, last.IsolationMode)
	back := `update public.tenant_runtime set isolation_mode = 'shared', database_id = null, database_host = null, database_name = null`
	databasetest.Exec(t, f.source, back)
	databasetest.Exec(t, f.source, unfence)
	f.command("resolve", `{"outcome":"rolled_back"}`)
	require.Equal(t, machine.RolledBack, f.e.State)
	own := pg.Address{DSN: f.target.DSN, Database: "tenant_misled"}
	databasetest.Exec(t, own, `insert into public.settings values ('misled', 'since', 'written')`)

	f.command("request", `{"mode":"offline"}`)
	require.Equal(t, "DB_ALLOCATION_FAILED", f.e.LastError.Code)
	require.Contains(t, f.e.LastError.Message, "applications were told that the tenant misled is in tenant_misled, under epoch "+strconv.FormatInt(last.Epoch, 10))
	require.Equal(t, "written", databasetest.Ask(t, own, `select value from public.settings where key = 'since'`))
	databasetest.Exec(t, f.source, back+`, epoch = epoch + 1`)
	f.command("retry", ``)
	require.Equal(t, cutover.Dedicated, last.IsolationMode)
	require.NotEqual(t, "DB_ALLOCATION_FAILED", f.e.LastError.Code, "it has gone on as far as in the first life: %v", f.e.LastError)
}

func kindsOf(left []database.Leftover) (kinds []string) {
	for i := range left {
		kinds = append(kinds, left[i].Kind)
	}
	return kinds
}
