package database_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/admin"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
)

// session drives the machine and the provider without an engine: every task is performed, every timer fires at once.
type session struct {
	t   *testing.T
	p   *database.Provider
	e   machines.Entity
	now time.Time
	seq uint64

	as    string          // the machine whose session it is; else that of tenants' databases
	twice bool            // each task is performed again, as after a crash, and an undo once more, as the next try of it; else as often as its effect says
	all   strings.Builder // everything that was emitted or stored
}

func setup(t *testing.T, tenant string) *session {
	t.Helper()
	return setupIn(t, &suite, tenant)
}

// setupIn has the shared database in a cluster, which may be another one than that of the tenants' own.
func setupIn(t *testing.T, shared *postgres.Suite, tenant string) *session {
	t.Helper()
	source := databasetest.Shared(t, shared, 20, tenant, "other")
	databasetest.Exec(t, source, `drop table public.events; alter table public.orders replica identity using index orders_tenant;
		create unique index names_tenant on public.names (enterprise_id, name); alter table public.names replica identity using index names_tenant`)
	name, err := pg.DatabaseName(tenant)
	require.NoError(t, err)
	databasetest.Forget(t, pg.Address{DSN: suite.Cluster(t).DSN("postgres")}, name)
	set, err := secret.NewKeyset()
	require.NoError(t, err)
	keys, err := secret.Open(set)
	require.NoError(t, err)
	p := &database.Provider{Source: source, Server: &admin.Server{Name: "t1", DSN: suite.Cluster(t).DSN("postgres")}, Catalogue: databasetest.Catalogue, Migrations: databasetest.Migrations(), Keys: keys, RangeRows: 10, Parallel: 1}
	return &session{t: t, p: p, e: machine.Machine.New("default", tenant, "db"), now: time.Now().UTC()}
}

func (s *session) step(in machines.Input) {
	s.seq++
	in.Seq, in.ID, in.Time = s.seq, fmt.Sprint(s.seq), s.now
	next, out, err := machine.Machine.Step(s.e, in)
	require.NoError(s.t, err, "%s while %s", in.Command, s.e.State)
	s.e = next
	stored, err := json.Marshal(next)
	require.NoError(s.t, err)
	s.all.Write(stored)
	for _, m := range out.Messages {
		s.all.Write(m.Body)
	}
	for _, m := range out.Messages {
		if m.Kind == machines.KindEffect {
			s.perform(m)
		}
	}
}

func (s *session) perform(m machines.Message) {
	var task machines.Task
	require.NoError(s.t, json.Unmarshal(m.Body, &task))
	task.Machine = cmp.Or(s.as, task.Machine)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	fx, _ := machine.Machine.Effect(task.Effect)
	result := s.p.Perform(ctx, task)
	if s.twice {
		s.same(result, s.p.Perform(ctx, task))
		if task.Effect == machine.EffectUndo {
			task.Fence++
			s.same(result, s.p.Perform(ctx, task))
		}
	} else {
		for n := 1; result.Failure != nil && result.Failure.Retryable && n < fx.Retry.Attempts; n++ {
			task.Try = n + 1
			result = s.p.Perform(ctx, task)
		}
		if result.Failure != nil && fx.Retry.Attempts > 1 {
			result.Failure.Retryable = false // these were all
		}
	}
	if result.Failure != nil {
		body, err := json.Marshal(machines.EffectFailed{Effect: task.Effect, Attempt: task.Attempt, Failure: *result.Failure})
		require.NoError(s.t, err)
		s.step(machines.Input{Command: machines.CommandFailed, Body: body})
		return
	}
	data, err := json.Marshal(result.Data)
	require.NoError(s.t, err)
	body, err := json.Marshal(machines.Report{Attempt: task.Attempt, Data: data})
	require.NoError(s.t, err)
	s.step(machines.Input{Command: fx.Done, Body: body})
}

// same requires that a task comes to the same when it is performed again.
func (s *session) same(result, again machines.Result) {
	require.Equal(s.t, again.Failure == nil, result.Failure == nil, "%v, %v", again.Failure, result.Failure)
	if undone, ok := result.Data.(machine.Undone); ok {
		for i, r := range again.Data.(machine.Undone).Actions {
			require.Equal(s.t, undone.Actions[i].Done, r.Done, "%+v, %+v", undone, again.Data)
			require.Equal(s.t, undone.Actions[i].LeftBehind, r.LeftBehind, "%+v, %+v", undone, again.Data)
		}
	}
}

func (s *session) command(name, body string) {
	s.step(machines.Input{Command: name, Body: json.RawMessage(body)})
}

func (s *session) runtime() string {
	return databasetest.Ask(s.t, s.p.Source, `select coalesce((select isolation_mode || ' ' || coalesce(database_name, '') from public.tenant_runtime where enterprise_id = $1), 'none')`, s.e.Parent)
}

func TestATenantIsMovedInEveryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"offline", "online", "snapshot"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			tenant := "moved-" + mode
			s := setup(t, tenant)
			s.twice, s.p.Parallel = true, 0
			s.command("request", fmt.Sprintf(`{"enterpriseId":%q,"mode":%q}`, tenant, mode))
			require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
			name := "tenant_" + strings.ReplaceAll(tenant, "-", "_")
			target := s.p.Server.Address(name, "")
			var rows int64
			for _, table := range databasetest.Tables {
				if table != "events" {
					arrived := databasetest.Rows(t, target, table, "")
					require.Equal(t, databasetest.Rows(t, s.p.Source, table, tenant), arrived, table)
					rows += int64(len(arrived))
				}
			}
			p := s.e.Data.(*machine.Data).Progress
			require.Equal(t, []int64{rows, rows}, []int64{p.Rows, p.Total}, "whoever has copied them")
			require.Equal(t, rows, s.e.Data.(*machine.Data).Verified.Rows)
			require.Equal(t, "dedicated_db "+name, s.runtime())
			d := s.e.Data.(*machine.Data)
			c, err := s.p.Keys.Unseal(d.Database.Credentials, tenant, name)
			require.NoError(t, err)
			require.NotContains(t, s.all.String(), c.Password, "a password in the clear")
			require.NotContains(t, s.all.String(), "postgres://")
			require.Equal(t, "0", databasetest.Ask(t, s.p.Source, `select count(*)::text from pg_replication_slots where database = current_database()`))
		})
	}
}

func TestAFailedSwitchIsRolledBackToWhatWasThere(t *testing.T) {
	t.Parallel()
	s := setup(t, "undone")
	s.twice = true
	rows := func() (list []string) {
		for _, table := range databasetest.Tables {
			if table != "events" {
				list = append(list, databasetest.Rows(t, s.p.Source, table, "")...)
			}
		}
		return list
	}
	before := rows()
	s.p.Told = func(_ context.Context, r database.Route) error {
		if r.IsolationMode == cutover.Dedicated {
			return errors.New("nobody acknowledges the epoch")
		}
		return nil
	}
	s.command("request", `{"enterpriseId":"undone"}`)
	require.Equal(t, machine.Failed, s.e.State)
	require.Equal(t, "SWITCHING_FAILED", s.e.LastError.Code)
	require.Equal(t, "dedicated_db tenant_undone", s.runtime())
	s.command("rollback", `{}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	require.Equal(t, "none", s.runtime())
	require.Equal(t, before, rows())
	require.Equal(t, "0", databasetest.Ask(t, s.p.Source, `select count(*)::text from pg_trigger where tgname like 'instar%'`))
	_, err := pg.Connect(t.Context(), s.p.Server.Address("tenant_undone", ""))
	require.Equal(t, pg.NoDatabase, pg.State(err))

	s.p.Told = nil
	s.command("request", `{"enterpriseId":"undone"}`)
	require.Equal(t, machine.Ready, s.e.State, "the next life: %v", s.e.LastError)
}

// Nothing was created and nothing was set up: the undo has nothing to do, and says so.
func TestACancelBeforeAnythingWasCreated(t *testing.T) {
	t.Parallel()
	s := setup(t, "early")
	s.twice = true
	s.command("request", `{"enterpriseId":"early","approval":true}`)
	require.Equal(t, machine.WaitingApproval, s.e.Data.(*machine.Data).Phase)
	require.Positive(t, s.e.Data.(*machine.Data).Plan.Total)
	s.command("cancel", ``)
	require.Equal(t, machine.Cancelled, s.e.State, "%v", s.e.LastError)
	require.Equal(t, "0", databasetest.Ask(t, s.p.Source, `select count(*)::text from pg_namespace where nspname = 'instar'`))
}

func TestATenantThatCannotBeMovedIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	s := setup(t, "stuck")
	s.twice = true
	databasetest.Exec(t, s.p.Source, `create table public.keyless (enterprise_id text)`)
	s.command("request", `{"enterpriseId":"stuck"}`)
	require.Equal(t, machine.Failed, s.e.State)
	require.Equal(t, "PREFLIGHT_FAILED", s.e.LastError.Code)
	require.Contains(t, s.e.LastError.Message, "keyless: it has no primary key")
	require.Equal(t, 1, s.e.Data.(*machine.Data).FailedAttempt, "repeating it does not help")
}

// Whatever the pace of the machine, more is written in each round of the comparison than would be few: rounds that do not help are not repeated, and the fence rises.
func TestATenantThatWritesFasterThanItIsComparedIsFenced(t *testing.T) {
	t.Parallel()
	s := setup(t, "hasty")
	require.NoError(t, (&cutover.Source{Address: s.p.Source, Enterprise: "hasty"}).Setup(t.Context()))
	databasetest.Exec(t, s.p.Source, `
		create table public.rounds (n bigint generated always as identity primary key);
		create function public.write() returns trigger language plpgsql as $$ begin
			insert into public.rounds default values;
			insert into public.settings select 'hasty', 'r' || (select max(n) from public.rounds) || ' ' || i, 'x' from generate_series(1, 1500) i;
			return null;
		exception when read_only_sql_transaction then return null; end $$;
		create trigger write after insert or update on instar.marker for each row execute function public.write()`)
	s.p.Catalogue.Tables = maps.Clone(s.p.Catalogue.Tables)
	s.p.Catalogue.Tables["rounds"] = catalog.Rule{Kind: catalog.Skip}
	s.command("request", `{"enterpriseId":"hasty","mode":"online"}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	require.Equal(t, databasetest.Rows(t, s.p.Source, "settings", "hasty"), databasetest.Rows(t, s.p.Server.Address("tenant_hasty", ""), "settings", ""))
	rounds := databasetest.Ask(t, s.p.Source, `select count(*)::text from public.rounds`)
	require.Equal(t, "4", rounds, "one after the copy, one before all is compared, and two after it")
}

// A table that is truncated before it is compared, also in an attempt before, is compared whole.
func TestATableIsTruncatedWhileItIsMoved(t *testing.T) {
	t.Parallel()
	s := setup(t, "cut")
	s.twice = true
	require.NoError(t, (&cutover.Source{Address: s.p.Source, Enterprise: "cut"}).Setup(t.Context()))
	databasetest.Exec(t, s.p.Source, `
		create table public.rounds (n bigint generated always as identity primary key);
		create function public.cut() returns trigger language plpgsql as $$ begin
			if not exists (select from public.rounds) then
				insert into public.rounds default values;
				truncate public.settings;
				insert into public.settings values ('cut', 'after', 'x');
			end if;
			return null; end $$;
		create trigger cut after insert or update on instar.marker for each row execute function public.cut()`)
	s.p.Catalogue.Tables = maps.Clone(s.p.Catalogue.Tables)
	s.p.Catalogue.Tables["rounds"] = catalog.Rule{Kind: catalog.Skip}
	s.command("request", `{"enterpriseId":"cut","mode":"online"}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	rows := databasetest.Rows(t, s.p.Source, "settings", "cut")
	require.Len(t, rows, 1)
	require.Equal(t, rows, databasetest.Rows(t, s.p.Server.Address("tenant_cut", ""), "settings", ""))
}

// Applications go where they are told: what leads nobody there is found before the tenant is kept out of anything.
func TestTheAddressThatApplicationsAreToldIsTried(t *testing.T) {
	t.Parallel()
	s := setup(t, "astray")
	s.p.Server.Host = "127.0.0.1:1" // where nobody listens
	s.command("request", `{}`)
	require.Equal(t, machine.Allocating, s.e.State)
	require.Equal(t, machine.RetryWait, s.e.Data.(*machine.Data).Phase)
	require.Contains(t, s.e.LastError.Message, "cannot enter database tenant_astray at "+s.p.Server.Host)
	require.Equal(t, "0", databasetest.Ask(t, s.p.Source, `select count(*)::text from pg_trigger where tgname like 'instar%'`))
	require.Equal(t, "none", s.runtime())
}

// The plan says which settings are not for what Postgres copies.
func TestThePlanNamesTheSettingsThatAreNotForModeOnline(t *testing.T) {
	t.Parallel()
	s := setup(t, "paced")
	s.p.Rate = 1 << 20
	for mode, says := range map[string]bool{"online": true, "offline": false} {
		s.command("request", fmt.Sprintf(`{"mode":%q,"dryRun":true}`, mode))
		require.Equal(t, machine.Cancelled, s.e.State)
		require.Equal(t, says, strings.Contains(strings.Join(s.e.Data.(*machine.Data).Plan.Notes, " "), "tenants.rate"), mode)
	}
}

// To start a connection costs a server more than most of what is asked through it, so a task keeps those that it has.
func TestATaskKeepsItsConnections(t *testing.T) {
	t.Parallel()
	s := setup(t, "thrifty")
	started := func() (n int) {
		_, err := fmt.Sscan(databasetest.Ask(t, s.p.Source, `select sum(sessions)::text from pg_stat_database where datname in (current_database(), 'tenant_thrifty')`), &n)
		require.NoError(t, err)
		return n
	}
	before := started()
	s.command("request", `{"enterpriseId":"thrifty","mode":"online"}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	require.Less(t, started()-before, 30)
}
