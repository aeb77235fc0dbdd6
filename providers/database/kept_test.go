package database_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
)

// The shared database keeps the rows of a tenant that has left it until somebody deletes them, which the fence refuses but to who says that it is meant. The way back does not end with that: a revert copies all of them back.
func TestRowsThatWereDeletedComeBackWithTheirTenant(t *testing.T) {
	t.Parallel()
	s, target := ready(t, "purged", "tenant_purged")
	want := map[string][]string{}
	for _, table := range databasetest.Tables {
		if table != "events" && table != "countries" {
			want[table] = databasetest.Rows(t, target, table, "")
		}
	}
	others := databasetest.Of(t, s.p.Source, "other")
	mark := strings.TrimSuffix(strings.TrimPrefix((&cutover.Source{Enterprise: "purged"}).Triggers(), "instar_fence_"), "_{i,u,d,t}")
	remove := func(first string) error {
		return exec(t, s.p.Source, `begin; `+first+`
			delete from public.remarks r using public.orders o where o.id = r.order_id and o.enterprise_id = 'purged';
			delete from public.lines l using public.orders o where o.id = l.order_id and o.enterprise_id = 'purged';
			delete from public.orders where enterprise_id = 'purged'; delete from public.names where enterprise_id = 'purged'; delete from public.settings where enterprise_id = 'purged'; commit`)
	}
	require.ErrorContains(t, remove(""), "the tenant purged is read-only")
	require.NoError(t, remove(`set local instar.fence = '`+mark+`';`))
	s.command("revert", `{}`)
	require.Equal(t, "REVERT_REFUSED", s.e.LastError.Code)
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	for table, rows := range want {
		require.Equal(t, rows, databasetest.Rows(t, s.p.Source, table, "purged"), table)
	}
	require.Equal(t, others, databasetest.Of(t, s.p.Source, "other"))
}
