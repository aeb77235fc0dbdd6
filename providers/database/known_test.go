package database_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// comparing notes which tables of a source are compared, and breaks off the first comparison of one.
type comparing struct {
	mu     sync.Mutex
	tables []string
	breaks string
}

func (c *comparing) fault(sql string) databasetest.Fault {
	_, from, found := strings.Cut(sql, ` from "public"."`)
	if !found || !strings.HasPrefix(sql, "select count(*), coalesce(sum(hash_record_extended(") {
		return databasetest.None
	}
	table, _, _ := strings.Cut(from, `"`)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.breaks == table {
		c.breaks, c.tables = "", nil
		return databasetest.Cut
	}
	c.tables = append(c.tables, table)
	return databasetest.None
}

// A comparison that has broken off goes on behind the tables that are the same, for as long as the fence has stood: what takes longer than an attempt ends at last.
func TestAComparisonGoesOnWhereItWasInterrupted(t *testing.T) {
	t.Parallel()
	for tenant, want := range map[string][]string{"further": {"countries", "settings"}, "doubted": {"countries", "orders", "lines", "names", "remarks", "settings"}, "lost": {"countries", "orders", "lines", "names", "remarks", "settings"}} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			c := &comparing{breaks: "settings"}
			var f *faulty
			open := func() { // its writers were let in
				databasetest.Exec(t, f.source, `do $$ declare r record; begin for r in select tgname from pg_trigger where tgrelid = 'public.names'::regclass and tgname like 'instar%' loop
					execute format('drop trigger %I on public.names', r.tgname); end loop; end $$`)
				databasetest.Exec(t, f.source, `update public.names set nick = 'since' where name = (select min(name) from public.names where enterprise_id = $1)`, tenant)
			}
			again := false
			once := sync.OnceFunc(open)
			f = setupFaulty(t, tenant, func(sql string) databasetest.Fault {
				if again && tenant == "lost" && strings.Contains(sql, `create or replace function "instar"."fence_`) { // while it is raised again
					once()
				}
				return c.fault(sql)
			}, none)
			f.command("request", `{}`)
			require.Equal(t, machine.RetryWait, f.e.Data.(*machine.Data).Phase, "%s: %v", f.e.State, f.e.LastError)
			if tenant == "doubted" {
				open()
			}
			again = true
			f.goesOn(machine.Ready, machine.Failed)
			require.Equal(t, machine.Ready, f.e.State, "%v", f.e.LastError)
			require.Equal(t, want, slices.Compact(c.tables))
			d := f.e.Data.(*machine.Data)
			require.Equal(t, []int64{6, d.Plan.Total}, []int64{int64(d.Verified.Tables), d.Verified.Rows})
			databasetest.Same(t, f.source, pg.Address{DSN: f.target.DSN, Database: "tenant_" + tenant}, tenant)
		})
	}
}

// A move that failed at its switch is taken back but for its database; the tenant writes, and is moved again by the same session. What the first move has compared is no reason to pass over what was written since.
func TestWhatIsWrittenBetweenTwoMovesIsMoved(t *testing.T) {
	t.Parallel()
	s := setup(t, "twofold")
	s.p.Told = refusesOwn
	s.command("request", `{}`)
	require.Equal(t, machine.Failed, s.e.State)
	require.NotNil(t, s.e.Data.(*machine.Data).Verified)
	s.rollback(`{"skip":["delete_database"]}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	databasetest.Exec(t, s.p.Source, `update public.names set nick = 'since' where name = (select min(name) from public.names where enterprise_id = 'twofold');
		insert into public.settings values ('twofold', 'since', 'x')`)
	s.p.Told = nil
	s.command("request", `{}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	databasetest.Same(t, s.p.Source, s.p.Server.Address("tenant_twofold", ""), "twofold")
}
