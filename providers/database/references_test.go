package database_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// What is copied whole is written after it was compared, and the tenant has a row that refers to it, just before the fence: both arrive. So it is where the log cannot tell what was written there.
func TestWhatIsCopiedWholeIsWrittenUntilTheFence(t *testing.T) {
	t.Parallel()
	for tenant, before := range map[string]string{
		"told": ``, "untold": `alter table public.countries replica identity nothing`, "unlogged": `alter table public.orders drop constraint orders_country_fkey; alter table public.countries set unlogged`,
	} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			var once sync.Once
			var f *faulty
			f = setupFaulty(t, tenant, func(sql string) databasetest.Fault {
				if strings.Contains(sql, `create or replace function "instar"."fence_`) {
					once.Do(func() {
						databasetest.Exec(t, f.source, `insert into public.countries values ('zz', 'New'); update public.countries set name = 'Allemagne' where code = 'de'; delete from public.countries where code = 'fr'`)
						databasetest.Exec(t, f.source, `insert into public.orders (enterprise_id, country, total) values ($1, 'zz', 1)`, tenant)
					})
				}
				return databasetest.None
			}, none)
			databasetest.Exec(t, f.source, before)
			f.command("request", `{"mode":"online"}`)
			require.Equal(t, machine.Ready, f.e.State, "%v", f.e.LastError)
			own := pg.Address{DSN: f.target.DSN, Database: "tenant_" + tenant}
			require.Equal(t, databasetest.Rows(t, f.source, "countries", ""), databasetest.Rows(t, own, "countries", ""))
			require.Equal(t, databasetest.Rows(t, f.source, "orders", tenant), databasetest.Rows(t, own, "orders", ""))
			f.nothingReplicates()
		})
	}
}
