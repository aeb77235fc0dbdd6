package database_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// An instance that has begun without rows (data: new) has moved none: those that the shared database has of its tenant stay as they are, whatever becomes of what was written since.
func TestARollbackOfAnInstanceThatBeganWithoutRowsLeavesThoseOfTheSharedDatabase(t *testing.T) {
	t.Parallel()
	const since = `insert into public.settings values ('%[1]s', 'since', 'x')`
	const order = `insert into public.orders (id, enterprise_id, total) overriding system value values (%d, '%%[1]s', 7)`
	for tenant, c := range map[string]struct{ wrote, told, taken, mends string }{
		"nothing":  {},
		"seeded":   {},
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
			if tenant == "seeded" {                                                                                                       // by its version, otherwise than the shared database has it
				databasetest.Exec(t, target, `insert into public.countries values ('xx', 'Another')`)
			}
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
			require.Equal(t, tenant == "seeded", slices.Contains(s.e.Data.(*machine.Data).Undone[0].LeftBehind, "1 rows of countries"))
			came := databasetest.Ask(t, s.p.Source, `with gone as (delete from public.settings where key = 'since' returning 1), more as (delete from public.orders where id = 1000000 returning 1) select (select count(*) from gone)::text`)
			require.Equal(t, map[bool]string{true: "1", false: "0"}[c.wrote != ""], came)
			require.Equal(t, before, databasetest.Everything(t, s.p.Source))
		})
	}
}

// While it is not known whether what was written has come back, and only then, the tenant stays out: what it changed meanwhile could not be told from what was never moved.
func TestATenantStaysOutWhileItIsUnknownWhatHasComeBack(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var through, lost, in bool
	var on atomic.Bool
	var f *faulty
	f = setupFaulty(t, "unknown", func(sql string) databasetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if lost {
			in = in || f.enter(f.e.Data.(*machine.Data).Database.Credentials) == nil
		}
		through = on.Load() && (through || strings.Contains(sql, "set_config('instar.fence'"))
		if !through || lost || !strings.HasPrefix(strings.ToLower(sql), "commit") {
			return databasetest.None
		}
		lost = true
		return databasetest.Lost
	}, none)
	f.as = "instance_provisioning"
	f.p.Told = refusesOwn
	f.command("request", `{"allowEmpty":true}`)
	require.Equal(t, machine.Failed, f.e.State)
	databasetest.Exec(t, pg.Address{DSN: f.target.DSN, Database: "tenant_unknown"}, `truncate public.orders, public.settings, public.names, public.countries, instar.moved cascade;
		insert into public.countries values ('xx', 'Another'); insert into public.settings values ('unknown', 'none', 'none'); insert into public.settings values ('unknown', 'since', 'x')`)
	databasetest.Exec(t, f.source, `alter table public.settings add check (value <> 'none')`)
	refused := func(says, mends string) {
		f.command("rollback", `{"keepWrites":true}`)
		require.Equal(t, machine.RollbackStuck, f.e.Data.(*machine.Data).Phase)
		require.Contains(t, f.e.Data.(*machine.Data).Undone[0].Error, says)
		require.NoError(t, f.enter(f.e.Data.(*machine.Data).Database.Credentials), "it is known that nothing has come back")
		databasetest.Exec(t, pg.Address{DSN: f.target.DSN, Database: "tenant_unknown"}, mends)
	}
	refused("tables that all tenants share are not the same in both databases: 1 rows of countries", `delete from public.countries`)
	refused("violates check constraint", `delete from public.settings where key = 'none'`)
	on.Store(true)
	f.command("rollback", `{"keepWrites":true}`)
	require.Equal(t, machine.RolledBack, f.e.State, "%+v", f.e.Data.(*machine.Data).Undone)
	require.True(t, lost)
	require.False(t, in)
	require.Equal(t, "1", databasetest.Ask(t, f.source, `select count(*)::text from public.settings where key = 'since'`))
}
