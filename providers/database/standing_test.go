package database_test

import (
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// An attempt of mode online that ends with its process leaves the fence that it has raised. A pause lets the tenant write again, and so does the next run, until it raises its own.
// Where a run has ended well, the next one of its attempt leaves the fence: the switch may begin.
func TestAFenceThatWasLeftIsLifted(t *testing.T) {
	t.Parallel()
	s := setup(t, "left")
	s.p.Catalogue.Tables = maps.Clone(s.p.Catalogue.Tables)
	s.p.Catalogue.Tables["refused"] = catalog.Rule{Kind: catalog.Skip}
	databasetest.Exec(t, s.p.Source, `create table public.refused (n bigint generated always as identity)`)
	body := machine.Task{Request: machine.RequestBody{EnterpriseID: "left", Mode: machine.ModeOnline}}
	perform := func(effect string, fence uint64) any {
		t.Helper()
		data, err := json.Marshal(body)
		require.NoError(t, err)
		r := s.p.Perform(t.Context(), machines.Task{Namespace: "default", Parent: "left", ID: "db", Effect: effect, Fence: fence, Data: data})
		require.Nil(t, r.Failure, "%s: %v", effect, r.Failure)
		return r.Data
	}
	a := perform("allocate", 1).(machine.Allocated)
	body.Database = &a
	perform("migrate", 2)
	perform("copy", 3)

	report, err := catalog.Inspect(t.Context(), databasetest.Open(t, s.p.Source), s.p.Catalogue)
	require.NoError(t, err)
	source := &cutover.Source{Address: s.p.Source, Enterprise: "left", Session: s.e.Key(), Attempt: 4}
	require.NoError(t, source.Fence(t.Context(), report.Tables))
	const write = `update public.settings set value = 'w' where enterprise_id = 'left' and key = 'Key 1'`
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, s.p.Source, write)))
	perform(machine.EffectHalt, 5)
	require.NoError(t, exec(t, s.p.Source, write))

	source.Attempt = 6
	require.NoError(t, source.Fence(t.Context(), report.Tables))
	databasetest.Exec(t, s.p.Source, `
		create function public.write() returns trigger language plpgsql as $$ begin
			`+write+`;
			return null;
		exception when read_only_sql_transaction then
			insert into public.refused default values;
			return null;
		end $$;
		create trigger write after insert or update on instar.marker for each row execute function public.write()`)
	refused := func() string { return databasetest.Ask(t, s.p.Source, `select count(*)::text from public.refused`) }
	first := perform("verify", 6)
	require.Equal(t, "1", refused(), "what was written while everything was compared passed, and what was written under its own fence not")
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, s.p.Source, write)))
	require.Equal(t, first, perform("verify", 6))
	require.Equal(t, "1", refused(), "a run that has ended well is not repeated while the tenant waits")
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, s.p.Source, write)), "it may have been followed by the switch")
}

// Two servers that are cut off from each other may compare for one attempt. The later run goes on alone: the earlier one takes no fence down, changes no row, and makes nobody forget what was written.
func TestOfTwoRunsOfAComparisonOneGoesOn(t *testing.T) {
	t.Parallel()
	s := setup(t, "twice")
	body := machine.Task{Request: machine.RequestBody{EnterpriseID: "twice", Mode: machine.ModeOnline}}
	perform := func(p *database.Provider, effect string, fence uint64) machines.Result {
		data, err := json.Marshal(body)
		require.NoError(t, err)
		return p.Perform(t.Context(), machines.Task{Namespace: "default", Parent: "twice", ID: "db", Effect: effect, Fence: fence, Data: data})
	}
	planned := perform(s.p, "plan", 1)
	require.Nil(t, planned.Failure, "%v", planned.Failure)
	for i, effect := range []string{"allocate", "migrate", "copy"} {
		r := perform(s.p, effect, uint64(i)+1)
		require.Nil(t, r.Failure, "%s: %v", effect, r.Failure)
		if a, ok := r.Data.(machine.Allocated); ok {
			body.Database = &a
		}
	}
	var fenced atomic.Bool
	stands, goesOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	earlier := &database.Provider{Server: s.p.Server, Catalogue: s.p.Catalogue, Migrations: s.p.Migrations, Keys: s.p.Keys, RangeRows: s.p.RangeRows, Parallel: 1, From: s.p.Source.DSN}
	earlier.Source = databasetest.Through(t, s.p.Source, func(sql string) databasetest.Fault {
		if strings.Contains(sql, "create or replace trigger") {
			fenced.Store(true)
		}
		if !fenced.Load() || !strings.Contains(sql, "pg_logical_slot_peek_binary_changes") {
			return databasetest.None
		}
		once.Do(func() { close(stands) })
		<-goesOn
		return databasetest.Cut
	})
	ended := make(chan machines.Result, 1)
	go func() { ended <- perform(earlier, "verify", 4) }()
	<-stands
	later := perform(s.p, "verify", 4)
	close(goesOn)
	require.NotNil(t, (<-ended).Failure)
	require.Nil(t, later.Failure, "%v", later.Failure)
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, s.p.Source, `update public.settings set value = 'w' where enterprise_id = 'twice' and key = 'Key 1'`)), "the fence of the later run")
	there(t, s.p, planned.Data.(machine.Plan).Resources)
	body.Fenced = later.Data.(machine.Verified).Fenced
	require.Nil(t, perform(s.p, "switch", 5).Failure)
}

// there requires that what a plan has named is there, and nothing else of its kind.
func there(t *testing.T, p *database.Provider, planned []machine.Resource) {
	t.Helper()
	server := pg.Address{DSN: p.Server.DSN}
	of := map[string][]string{}
	for _, r := range planned {
		of[r.Kind] = append(of[r.Kind], r.Name+" on "+r.On)
	}
	link := databasetest.Ask(t, p.Source, `select slot_name::text from pg_replication_slots where database = current_database() and slot_name not like '%\_keys'`)
	template := databasetest.Ask(t, server, `select datname::text from pg_database where datname = $1`, strings.TrimSuffix(of["template"][0], " on server t1"))
	mark := databasetest.Ask(t, p.Source, `select min(substr(tgname, 1, 25)) from pg_trigger where starts_with(tgname, 'instar_fence_')`)
	require.Equal(t, map[string][]string{
		"template": {template + " on server t1"}, "database": {"tenant_twice on server t1"}, "role": {"tenant_twice on server t1"},
		"slot": {link + " on shared database", link + "_keys on shared database"}, "publication": {link + " on shared database", link + "_keys on shared database"}, "subscription": {link + " on server t1"},
		"trigger": of["trigger"], "runtime": {"public.tenant_runtime, twice on shared database"}, "quarantine": of["quarantine"],
	}, of)
	triggers := strings.Split(databasetest.Ask(t, p.Source, `select string_agg(distinct tgrelid::regclass::text, ',') from pg_trigger where starts_with(tgname, 'instar_fence_')`), ",")
	require.Len(t, of["trigger"], len(triggers))
	for _, table := range triggers {
		require.Contains(t, of["trigger"], mark+"_{i,u,d,t} on "+strings.TrimPrefix(table, "public."))
	}
	require.Regexp(t, `^q_[0-9a-f]{8}_\*_tenant_twice on server t1$`, of["quarantine"][0])
}
