package database_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

func TestATenantIsClosed(t *testing.T) {
	t.Parallel()
	s, target := ready(t, "over", "tenant_over")
	var told []database.Route
	s.p.Told = recorded(&told)
	before := databasetest.Rows(t, s.p.Source, "orders", "")
	s.command("deprovision", `{"tenant":"over"}`)
	require.Equal(t, machine.Retired, s.e.State, "%v", s.e.LastError)
	require.Equal(t, "dedicated_db deprovisioned", databasetest.Ask(t, s.p.Source, `select isolation_mode || ' ' || status from public.tenant_runtime where enterprise_id = 'over' and database_name is null`))
	require.Equal(t, database.Deprovisioned, told[len(told)-1].Status)
	_, err := pg.Connect(t.Context(), target)
	require.Equal(t, pg.NoDatabase, pg.State(err))
	require.Equal(t, before, databasetest.Rows(t, s.p.Source, "orders", ""))
	require.Equal(t, pg.ReadOnly, pg.State(exec(t, s.p.Source, `update public.settings set value = 'x' where enterprise_id = 'over'`)))

	s.command("request", `{"enterpriseId":"over"}`)
	require.Equal(t, machine.Ready, s.e.State, "the next life: %v", s.e.LastError)
}

// A tenant that was closed is moved again, by the same session or by another one, and that is taken back: it is closed as it was, also its rows in the shared database.
func TestATenantThatWasClosedStaysSo(t *testing.T) {
	t.Parallel()
	for tenant, id := range map[string]string{"retired": "db", "anew": "second"} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			s, _ := ready(t, tenant, "tenant_"+tenant)
			s.command("deprovision", fmt.Sprintf(`{"tenant":%q}`, tenant))
			require.Equal(t, machine.Retired, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
			row := func() string {
				return databasetest.Ask(t, s.p.Source, `select (to_jsonb(r) - '{epoch}'::text[])::text from public.tenant_runtime r where enterprise_id = $1`, tenant)
			}
			closed := row()
			require.Contains(t, closed, database.Deprovisioned)
			taken := func() {
				t.Helper()
				require.Equal(t, closed, row())
				require.Equal(t, pg.ReadOnly, pg.State(exec(t, s.p.Source, fmt.Sprintf(`update public.settings set value = 'x' where enterprise_id = %s`, pg.Literal(tenant)))))
				undone := s.e.Data.(*machine.Data).Undone
				at := slices.IndexFunc(undone, func(r machine.ActionResult) bool { return r.Action == machine.ActionLift })
				require.True(t, undone[at].Skipped, "%+v", undone)
				fence := `"resource":{"type":"fence","id":"tenant_` + tenant + `","action":"`
				require.Contains(t, s.all.String(), fence+`created"}`)
				require.NotContains(t, s.all.String(), fence+`deleted"}`)
			}
			if id != s.e.ID {
				version := s.e.Version
				s.e = machine.Machine.New("default", tenant, id)
				s.e.Version = version
			}
			s.command("request", `{}`)
			require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
			s.command("revert", `{}`)
			require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
			taken()
			s.p.Told = refusesOwn // at the switch, once its verification has raised the fence
			s.command("request", `{"mode":"online"}`)
			require.Equal(t, machine.Failed, s.e.State)
			s.p.Told = nil
			s.command("rollback", `{}`)
			require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
			taken()
		})
	}
}
