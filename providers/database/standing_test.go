package database_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
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
	perform("verify", 6)
	require.Equal(t, "1", refused(), "what was written while everything was compared passed, and what was written under its own fence not")
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, s.p.Source, write)))
	perform("verify", 6)
	require.Equal(t, "4", refused(), "a run that has ended well may have been followed by the switch")

	ended, err := source.Compare(t.Context(), "again")
	require.NoError(t, err)
	require.True(t, ended)
	source.Attempt = 7
	for _, run := range []string{"first", "second"} {
		ended, err = source.Compare(t.Context(), run)
		require.NoError(t, err)
		require.False(t, ended)
	}
	require.ErrorContains(t, source.Compared(t.Context(), "first"), "another run")
	require.NoError(t, source.Compared(t.Context(), "second"))
}
