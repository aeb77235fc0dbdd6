package database_test

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/databasetest"
)

// What a table's rows are told by may go from the shared database after the move. Such a table, and what hangs on it, is named, and the tenant is let in again.
func TestARevertNamesATableWhoseRowsCannotBeToldAnyMore(t *testing.T) {
	t.Parallel()
	const link = "lines_order_id_fkey"
	const twice = `alter table public.lines add constraint again foreign key (order_id) references public.orders`
	child := catalog.Rule{Kind: catalog.Child}
	for tenant, c := range map[string]struct {
		table string
		rule  catalog.Rule
		sql   string
		named []string
	}{
		"unlinked": {"lines", child, `alter table public.lines drop constraint ` + link, []string{"lines: the catalogue says that it is a child"}},
		"renamed":  {"lines", catalog.Rule{Kind: catalog.Child, Via: link}, `alter table public.lines rename constraint ` + link + ` to other`, []string{"lines: the catalogue says that it is a child"}},
		"doubled":  {"lines", child, twice, []string{"lines: the catalogue says that it is a child"}},
		"via":      {"lines", catalog.Rule{Via: link}, twice + `; alter table public.lines rename constraint ` + link + ` to other`, []string{"lines: it has no column enterprise_id"}},
		"owner":    {"orders", catalog.Rule{Kind: catalog.Tenant, Column: "enterprise_id"}, `alter table public.orders rename enterprise_id to owner`, []string{"orders: the catalogue says that the column enterprise_id names the tenant", "lines: its foreign key " + link + " leads to orders"}},
		"column":   {"names", catalog.Rule{Column: "enterprise_id"}, `alter table public.names rename enterprise_id to owner`, []string{"names: it has no column enterprise_id"}},
	} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			s := setup(t, tenant)
			s.p.Catalogue.Tables = maps.Clone(s.p.Catalogue.Tables)
			s.p.Catalogue.Tables[c.table] = c.rule
			s.command("request", `{}`)
			require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
			target := s.p.Server.Address("tenant_"+tenant, "")
			s.twice = true
			databasetest.Exec(t, s.p.Source, c.sql)
			databasetest.Exec(t, target, `truncate public.remarks`) // which would be named first
			for _, body := range []string{`{}`, `{"keepWrites":true}`} {
				s.command("revert", body)
				require.Equal(t, machine.Ready, s.e.State, body)
				for _, named := range c.named {
					require.Contains(t, s.e.LastError.Message, named, body)
				}
				require.NoError(t, s.enter(s.e.Data.(*machine.Data).Database.Credentials), "it is let in again")
			}

			databasetest.Exec(t, target, `truncate public.`+c.table+` cascade; insert into public.settings values (substr(current_database(), 8), 'since', 'x')`)
			s.command("revert", `{"keepWrites":true}`)
			require.Equal(t, machine.RolledBack, s.e.State, "what has no rows refuses nothing: %v", s.e.LastError)
			require.Equal(t, "1", databasetest.Ask(t, s.p.Source, `select count(*)::text from public.settings where enterprise_id = $1 and key = 'since'`, tenant))
		})
	}
}

// exploding panics once armed, as a defect in what is done with it does.
type exploding struct {
	context.Context
	armed *atomic.Bool
}

func (e exploding) Deadline() (time.Time, bool) { // which is asked before a connection is taken
	if e.armed.CompareAndSwap(true, false) {
		panic("a defect")
	}
	return e.Context.Deadline()
}

// A defect of a comparison does not keep the tenant out.
func TestAPanicKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	s, _ := ready(t, "panics", "tenant_panics")
	d := s.e.Data.(*machine.Data)
	var armed atomic.Bool
	own := s.p.Server.DSN
	s.p.Server.DSN = databasetest.Through(t, s.p.Server.Address("", ""), func(sql string) databasetest.Fault {
		armed.CompareAndSwap(false, strings.Contains(sql, "relispartition"))
		return databasetest.None
	}).DSN
	body, err := json.Marshal(machine.Task{Request: d.Request, Database: d.Database, Ledger: d.Ledger, Epoch: d.Epoch, Actions: []machine.Action{{Name: machine.ActionSettle, Stop: true}}})
	require.NoError(t, err)
	task := machines.Task{Namespace: "default", Parent: "panics", ID: "db", Effect: machine.EffectUndo, Fence: s.e.Version + 1, Data: body}
	require.PanicsWithValue(t, "a defect", func() { s.p.Perform(exploding{t.Context(), &armed}, task) })
	s.p.Server.DSN = own
	require.NoError(t, s.enter(d.Database.Credentials))
}
