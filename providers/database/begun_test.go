package database_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
)

// An instance that has begun without rows (data: new) has moved none: those that the shared database has of its tenant stay as they are, whatever becomes of what was written since.
func TestARollbackOfAnInstanceThatBeganWithoutRowsLeavesThoseOfTheSharedDatabase(t *testing.T) {
	t.Parallel()
	const since = `insert into public.settings values ('%[1]s', 'since', 'x')`
	const order = `insert into public.orders (id, enterprise_id, total) overriding system value values (%d, '%%[1]s', 7)`
	for tenant, c := range map[string]struct{ wrote, told, taken, mends string }{
		"nothing":  {},
		"another":  {since, "written since the switch: 1 rows of settings;", "", ""},
		"numbered": {since + `; ` + fmt.Sprintf(order, 1), "1 rows of orders, 1 rows of settings;", "table orders: rows that the tenant has written have keys that other rows have", `delete from public.orders; ` + fmt.Sprintf(order, 1000000)},
		"keyed":    {since + `; insert into public.settings values ('%[1]s', 'Key 1', 'mine')`, "2 rows of settings;", "table settings: rows that the tenant has written have keys that other rows have", `delete from public.settings where key = 'Key 1'`},
		"twice":    {since + `; insert into public.settings values ('%[1]s', 'Key 2', 'v')`, "1 rows of settings;", "", ""}, // the same as in the shared database
	} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			s := setup(t, tenant)
			s.as = "instance_provisioning"
			s.p.Told = refusesOwn
			s.command("request", `{"allowEmpty":true}`)
			require.Equal(t, machine.Failed, s.e.State)
			s.twice = true
			target := s.p.Server.Address("tenant_"+tenant, "")
			databasetest.Exec(t, target, `truncate public.orders, public.settings, public.names, public.countries, instar.moved cascade`) // as the machine of instances leaves it
			before := databasetest.Everything(t, s.p.Source)
			if c.wrote != "" {
				databasetest.Exec(t, target, fmt.Sprintf(c.wrote, tenant))
				stuck := func(body, says string) {
					s.command("rollback", body)
					d := s.e.Data.(*machine.Data)
					require.Equal(t, machine.RollbackStuck, d.Phase, body)
					require.Contains(t, d.Undone[0].Error, says)
					require.NoError(t, s.enter(d.Database.Credentials), "it is let in again")
					require.Equal(t, before, databasetest.Everything(t, s.p.Source))
				}
				stuck(`{}`, c.told)
				if c.taken != "" {
					stuck(`{"keepWrites":true}`, c.taken)
					databasetest.Exec(t, target, fmt.Sprintf(c.mends+`--%[1]s`, tenant))
				}
				s.command("rollback", `{"keepWrites":true}`)
			} else {
				s.command("rollback", `{}`)
			}
			require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
			came := databasetest.Ask(t, s.p.Source, `with gone as (delete from public.settings where key = 'since' returning 1), more as (delete from public.orders where id = 1000000 returning 1) select (select count(*) from gone)::text`)
			require.Equal(t, map[bool]string{true: "1", false: "0"}[c.wrote != ""], came)
			require.Equal(t, before, databasetest.Everything(t, s.p.Source))
		})
	}
}
