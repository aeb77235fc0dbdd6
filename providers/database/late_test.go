package database_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// A store that was restored, or begun anew, has the session in a state that it has left. What it does then touches nothing of a tenant that is in its own database.
func TestASessionOlderThanRealityTouchesNothing(t *testing.T) {
	t.Parallel()
	s, target := ready(t, "older", "tenant_older")
	databasetest.Exec(t, target, `insert into public.settings values ('older', 'since', 'x'); delete from public.settings where key = 'Key 1'`)
	want, d := databasetest.Rows(t, target, "settings", ""), s.e.Data.(*machine.Data)
	for i, effect := range []string{"allocate", "copy", "verify", machine.ActionCheck} {
		body, err := json.Marshal(machine.Task{Request: d.Request, Database: d.Database})
		require.NoError(t, err)
		r := s.p.Perform(t.Context(), machines.Task{Namespace: "default", Parent: "older", ID: "db", Effect: effect, Fence: s.e.Version + uint64(i) + 1, Data: body})
		require.NotNil(t, r.Failure, effect)
		require.Contains(t, r.Failure.Message, "resolve as ready", effect)
		require.False(t, r.Failure.Retryable)
	}
	online := d.Request
	online.Mode = machine.ModeOnline
	body, err := json.Marshal(machine.Task{Request: online, Database: d.Database})
	require.NoError(t, err)
	r := s.p.Perform(t.Context(), machines.Task{Namespace: "default", Parent: "older", ID: "db", Effect: machine.EffectHalt, Fence: s.e.Version + 5, Data: body})
	require.Nil(t, r.Failure, "a pause leaves the fence")
	version := s.e.Version
	s.e = machine.Machine.New("default", "older", "db")
	s.e.Version = version + 10
	s.command("request", `{"enterpriseId":"older","onFailure":"rollback"}`)
	require.Equal(t, machine.RollbackStuck, s.e.Data.(*machine.Data).Phase, "%s: %v", s.e.State, s.e.LastError)
	require.Contains(t, s.e.Data.(*machine.Data).Undone[0].Error, "is in this database")
	require.Equal(t, want, databasetest.Rows(t, target, "settings", ""))
	c, err := s.p.Keys.Unseal(d.Database.Credentials, "older", d.Database.Name)
	require.NoError(t, err)
	require.NoError(t, s.p.Server.Try(t.Context(), d.Database.Name, c), "its password is as it was")
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, s.p.Source, `update public.settings set value = 'x' where enterprise_id = 'older'`)))
	s.command("resolve", `{"outcome":"ready"}`)
	require.Equal(t, machine.Ready, s.e.State)
}

// A source that has failed over may lack the switch. That is no routing which leads back already: what the tenant has written since would be put aside unseen.
func TestARevertIsRefusedWhereTheSourceLacksTheSwitch(t *testing.T) {
	t.Parallel()
	s, target := ready(t, "lacking", "tenant_lacking")
	databasetest.Exec(t, target, `insert into public.settings values ('lacking', 'since', 'x')`)
	row := databasetest.Ask(t, s.p.Source, `select to_jsonb(r)::text from public.tenant_runtime r`)
	databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime`)
	databasetest.Exec(t, s.p.Source, `update instar.attempt set epoch = 0`)
	for _, body := range []string{`{}`, `{"keepWrites":true}`} {
		databasetest.Exec(t, pg.Address{DSN: s.p.Server.DSN}, `alter role tenant_lacking nologin`) // by a try of the undo before the source has failed over
		s.command("revert", body)
		require.Equal(t, "true", databasetest.Ask(t, pg.Address{DSN: s.p.Server.DSN}, `select rolcanlogin::text from pg_roles where rolname = 'tenant_lacking'`), body)
		require.Equal(t, machine.Ready, s.e.State, body)
		require.Contains(t, s.e.LastError.Message, "has epoch 0 of the tenant lacking, and had 1")
		require.NoError(t, s.enter(s.e.Data.(*machine.Data).Database.Credentials))
	}
	databasetest.Exec(t, s.p.Source, `insert into public.tenant_runtime select * from jsonb_populate_record(null::public.tenant_runtime, $1::text::jsonb)`, row)
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	require.Equal(t, "1", databasetest.Ask(t, s.p.Source, `select count(*)::text from public.settings where enterprise_id = 'lacking' and key = 'since'`))
}

// lose takes the switch from the source, as a failover to a standby that lacked it does, and returns what was lost.
func (s *session) lose() (row string) {
	row = databasetest.Ask(s.t, s.p.Source, `select to_jsonb(r)::text from public.tenant_runtime r`)
	databasetest.Exec(s.t, s.p.Source, `delete from public.tenant_runtime; update instar.attempt set epoch = 0, previous = null`)
	return row
}

// A session that was resolved as ready has its tenant in its database as one that has switched: applications were told, and a source that has lost the switch is seen.
func TestAResolvedSessionIsAsOneThatHasSwitched(t *testing.T) {
	t.Parallel()
	s := setup(t, "resolved")
	s.p.Told = refusesOwn
	s.command("request", `{}`)
	require.Equal(t, machine.Failed, s.e.State)
	sealed := s.e.Data.(*machine.Data).Database.Credentials
	var told []database.Route
	s.p.Told = func(ctx context.Context, r database.Route) error {
		told = append(told, r)
		return refusesOwn(ctx, r) // one who is still there does not hold back who has repaired it by hand
	}
	s.command("resolve", `{"outcome":"ready"}`)
	require.Equal(t, machine.Ready, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	require.EqualValues(t, 1, s.e.Data.(*machine.Data).Epoch)
	require.Equal(t, []database.Route{{Enterprise: "resolved", Credentials: sealed, Runtime: cutover.Runtime{
		IsolationMode: cutover.Dedicated, DatabaseID: "t1/tenant_resolved", DatabaseHost: s.e.Data.(*machine.Data).Database.Host, DatabaseName: "tenant_resolved", Status: "active", Epoch: 1,
	}}}, told)

	s.p.Told = nil
	databasetest.Exec(t, s.p.Server.Address("tenant_resolved", ""), `insert into public.settings values ('resolved', 'since', 'x')`)
	s.lose()
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.Ready, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	require.Contains(t, s.e.LastError.Message, "has epoch 0 of the tenant resolved, and had 1")
}

// The session never got to its switch, and somebody has switched by hand, without an epoch: applications are told under one that they follow.
func TestASessionThatWasSwitchedByHandIsTold(t *testing.T) {
	t.Parallel()
	s := setup(t, "byhand")
	var told []database.Route
	s.p.Told = func(_ context.Context, r database.Route) error {
		told = append(told, r)
		return nil
	}
	databasetest.Exec(t, s.p.Source, databasetest.Refused)
	s.command("request", `{}`)
	d := s.e.Data.(*machine.Data)
	require.Equal(t, machine.Copying, d.FailedFrom, "%v", s.e.LastError)
	databasetest.Exec(t, s.p.Source, `insert into public.tenant_runtime (enterprise_id, isolation_mode, database_id, database_host, database_name) values ('byhand', 'dedicated_db', $1, $2, $3)`, d.Database.DatabaseID, d.Database.Host, d.Database.Name)
	s.command("resolve", `{"outcome":"ready"}`)
	require.Equal(t, machine.Ready, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	require.Len(t, told, 1)
	require.EqualValues(t, 1, told[0].Epoch)
	require.Equal(t, "tenant_byhand", told[0].DatabaseName)
	require.Equal(t, d.Database.Credentials, told[0].Credentials)

	s.lose()
	s.command("revert", `{}`)
	require.Contains(t, s.e.LastError.Message, "has epoch 0 of the tenant byhand, and had 1")
	stored := *s.e.Data.(*machine.Data)
	stored.Epoch, s.e.Data = 0, &stored // by an earlier version
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "it is not known under which epoch")
}

// A switch that has failed may have been told all the same: a source that lacks it is seen by what applications were told.
func TestARollbackIsRefusedWhereTheSourceLacksASwitchThatFailed(t *testing.T) {
	t.Parallel()
	s := setup(t, "unsure")
	var last cutover.Runtime
	s.p.Last = func(context.Context, string) (cutover.Runtime, error) { return last, nil }
	s.p.Told = func(ctx context.Context, r database.Route) error {
		last = r.Runtime
		return refusesOwn(ctx, r)
	}
	s.command("request", `{}`)
	require.Equal(t, machine.Failed, s.e.State)
	require.Equal(t, "tenant_unsure", last.DatabaseName)
	databasetest.Exec(t, s.p.Server.Address("tenant_unsure", ""), `insert into public.settings values ('unsure', 'since', 'x')`)
	row := s.lose()
	s.command("rollback", `{"keepWrites":true}`)
	require.Equal(t, machine.RollbackStuck, s.e.Data.(*machine.Data).Phase, s.e.State)
	require.Contains(t, s.e.Data.(*machine.Data).Undone[0].Error, "has epoch 0 of the tenant unsure, and had 1")
	databasetest.Exec(t, s.p.Source, `insert into public.tenant_runtime select * from jsonb_populate_record(null::public.tenant_runtime, $1::text::jsonb)`, row)
	s.command("rollback", `{"keepWrites":true}`)
	require.True(t, s.e.Data.(*machine.Data).Undone[0].Done, "%+v", s.e.Data.(*machine.Data).Undone)
}

// A target that does not answer, or is closed, keeps nobody from letting the tenant in where it was.
func TestAnUndoGoesOnWithoutItsTarget(t *testing.T) {
	t.Parallel()
	for tenant, closed := range map[string]bool{"closed": true, "unreached": false} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			s := untold(t, tenant, `{}`)
			if closed { // what an undo that was interrupted leaves
				databasetest.Exec(t, s.p.Source, `insert into instar.settled select enterprise_id, session from instar.attempt`)
				databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime`)
				databasetest.Exec(t, pg.Address{DSN: s.p.Server.DSN}, `alter database tenant_closed allow_connections false`)
			} else {
				s.p.Server.DSN = "postgres://nobody@127.0.0.1:1/postgres"
				s.rollback(`{}`)
				d := s.e.Data.(*machine.Data)
				require.Equal(t, machine.RollbackStuck, d.Phase)
				require.Equal(t, machine.ActionSettle, d.Undone[0].Action)
				require.Contains(t, d.Undone[0].Error, "cannot connect")
				s.rollback(`{"discardWrites":true}`)
				d = s.e.Data.(*machine.Data)
				require.Equal(t, machine.RollbackStuck, d.Phase)
				require.Equal(t, "none", s.runtime())
				require.NoError(t, exec(t, s.p.Source, `update public.settings set value = 'x' where enterprise_id = 'unreached'`))
			}
			body := `{}`
			if !closed {
				body = `{"skip":["delete_database"]}`
			}
			s.rollback(body)
			require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
		})
	}
}

// rollback tries the undo as often as it may be tried.
func (s *session) rollback(body string) {
	s.command("rollback", body)
	for timer, waits := s.e.Timers["retry-undo"]; waits; timer, waits = s.e.Timers["retry-undo"] {
		s.now = timer.At
		elapsed, err := json.Marshal(machines.Elapsed{Timer: "retry-undo", Armed: timer.Armed})
		require.NoError(s.t, err)
		s.step(machines.Input{Command: machines.CommandElapsed, Body: elapsed})
	}
}

// Applications are not told of a database that they would have no credentials for.
func TestNobodyIsLetInWithoutCredentials(t *testing.T) {
	t.Parallel()
	s := setup(t, "keyless")
	var told []string
	s.p.Told = func(_ context.Context, r database.Route) error {
		told = append(told, r.Credentials)
		return nil
	}
	databasetest.Exec(t, s.p.Source, databasetest.Refused)
	s.command("request", `{}`)
	d := s.e.Data.(*machine.Data)
	require.Equal(t, machine.Copying, d.FailedFrom, "%v", s.e.LastError)
	server := pg.Address{DSN: s.p.Server.DSN}
	route := func(id string) {
		databasetest.Exec(t, s.p.Source, `insert into public.tenant_runtime (enterprise_id, isolation_mode, database_id, database_host, database_name) values ('keyless', 'dedicated_db', $1, $2, $3)
			on conflict (enterprise_id) do update set database_id = excluded.database_id`, id, d.Database.Host, d.Database.Name)
	}
	refused := func(why string) {
		t.Helper()
		s.command("resolve", `{"outcome":"ready"}`)
		require.Equal(t, machine.Failed, s.e.State)
		d := s.e.Data.(*machine.Data)
		require.Contains(t, d.Undone[0].Error, why)
		require.Empty(t, told)
	}
	route("t2/" + d.Database.Name)
	refused("(t2/tenant_keyless), and server t1 has no credentials for that")
	route(d.Database.DatabaseID)
	databasetest.Exec(t, server, `update instar.tenant_database set sealed = null where name = 'tenant_keyless'`)
	refused("(t1/tenant_keyless), and server t1 has no credentials for that")
	databasetest.Exec(t, server, `update instar.tenant_database set sealed = $1 where name = 'tenant_keyless'`, d.Database.Credentials)
	s.command("resolve", `{"outcome":"ready"}`)
	require.Equal(t, machine.Ready, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	require.Equal(t, []string{d.Database.Credentials}, told)
}

// A session that is ready because somebody has said so, older than its switch or switched by hand, leads back as one that has switched.
func TestAResolvedSessionIsReverted(t *testing.T) {
	t.Parallel()
	t.Run("restored", func(t *testing.T) {
		t.Parallel()
		s, target := ready(t, "restored", "tenant_restored")
		databasetest.Exec(t, target, `insert into public.settings values ('restored', 'since', 'x')`)
		version := s.e.Version
		s.e = machine.Machine.New("default", "restored", "db")
		s.e.Version = version + 10
		s.command("request", `{}`)
		s.command("resolve", `{"outcome":"ready"}`)
		require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
		s.revert(`{"keepWrites":true}`)
		require.Equal(t, "none", s.runtime())
		require.Equal(t, "1", databasetest.Ask(t, s.p.Source, `select count(*)::text from public.settings where enterprise_id = 'restored' and key = 'since'`))
	})
	byHand := func(t *testing.T, s *session, name string) {
		d := s.e.Data.(*machine.Data)
		databasetest.Exec(t, s.p.Source, `insert into public.tenant_runtime (enterprise_id, isolation_mode, database_id, database_host, database_name) values ($1, 'dedicated_db', $2, $3, $4)`, d.Request.EnterpriseID, d.Database.DatabaseID, d.Database.Host, name)
	}
	failed := func(t *testing.T, tenant string) *session {
		s := setup(t, tenant)
		databasetest.Exec(t, s.p.Source, databasetest.Refused)
		s.command("request", `{}`)
		require.Equal(t, machine.Copying, s.e.Data.(*machine.Data).FailedFrom, "%v", s.e.LastError)
		return s
	}
	resolve := func(t *testing.T, s *session) {
		s.command("resolve", `{"outcome":"ready"}`)
		require.Equal(t, machine.Ready, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	}
	t.Run("switched by hand", func(t *testing.T) {
		t.Parallel()
		s := failed(t, "handmade")
		byHand(t, s, "tenant_handmade")
		resolve(t, s)
		s.twice = true
		s.revert(`{"discardWrites":true}`)
		require.Equal(t, "shared ", s.runtime())
	})
	t.Run("switched by hand afterwards", func(t *testing.T) {
		t.Parallel()
		s := failed(t, "afterwards")
		resolve(t, s) // as an earlier version did with all of them: the ledger has no switch
		byHand(t, s, "tenant_afterwards")
		databasetest.Exec(t, s.p.Server.Address("tenant_afterwards", ""), `insert into public.settings values ('afterwards', 'since', 'x')`)
		s.twice = true
		s.revert(`{"keepWrites":true}`)
		require.Equal(t, "shared ", s.runtime())
		require.Equal(t, "1", databasetest.Ask(t, s.p.Source, `select count(*)::text from public.settings where enterprise_id = 'afterwards' and key = 'since'`))
	})
	t.Run("sent elsewhere by hand", func(t *testing.T) {
		t.Parallel()
		s := failed(t, "elsewhere")
		resolve(t, s)
		byHand(t, s, "somewhere")
		s.command("revert", `{"discardWrites":true}`)
		require.Equal(t, machine.RollbackStuck, s.e.Data.(*machine.Data).Phase)
		require.Contains(t, s.e.Data.(*machine.Data).Undone[0].Error, "leads the tenant elsewhere to somewhere, which is not this session's")
		require.Equal(t, "dedicated_db somewhere", s.runtime())
		databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime`)
		s.command("rollback", `{}`)
		require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	})
}

// A revert of a tenant that was moved without a fence raises one to keep its writes, and leaves none.
func TestARevertLeavesNoFence(t *testing.T) {
	t.Parallel()
	s := setup(t, "open")
	s.command("request", `{"mode":"snapshot"}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	databasetest.Exec(t, s.p.Server.Address("tenant_open", ""), `insert into public.settings values ('open', 'since', 'x')`)
	var told []string
	s.p.Told = func(_ context.Context, r database.Route) error {
		told = append(told, r.DatabaseName, pg.State(exec(t, s.p.Source, `update public.settings set value = 'x' where enterprise_id = 'open'`)))
		return nil
	}
	defer func() { require.Equal(t, []string{"", pg.ReadOnly}, told, "nobody writes there before all know") }()
	s.revert(`{"keepWrites":true}`)
}

// revert sends the tenant back, where it may write.
func (s *session) revert(body string) {
	s.t.Helper()
	s.command("revert", body)
	require.Equal(s.t, machine.RolledBack, s.e.State, "%v: %+v", s.e.LastError, s.e.Data.(*machine.Data).Undone)
	require.NoError(s.t, exec(s.t, s.p.Source, `update public.settings set value = 'x' where enterprise_id = '`+s.e.Parent+`'`))
	require.Equal(s.t, "0", databasetest.Ask(s.t, s.p.Source, `select count(*)::text from pg_trigger where starts_with(tgname, 'instar_fence')`))
}
