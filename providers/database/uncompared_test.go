package database_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	const twice, once = `alter table public.lines add constraint again foreign key (order_id) references public.orders`, `alter table public.lines drop constraint again`
	const other, back = `alter table public.lines rename constraint ` + link + ` to other`, `alter table public.lines rename constraint other to ` + link
	child := catalog.Rule{Kind: catalog.Child}
	for tenant, c := range map[string]struct {
		table      string
		rule       catalog.Rule
		sql, mends string
		named      []string
	}{
		"unlinked": {"lines", child, `alter table public.lines drop constraint ` + link, linked, []string{"lines: the catalogue says that it is a child"}},
		"renamed":  {"lines", catalog.Rule{Kind: catalog.Child, Via: link}, other, back, []string{"lines: the catalogue says that it is a child"}},
		"doubled":  {"lines", child, twice, once, []string{"lines: the catalogue says that it is a child"}},
		"via":      {"lines", catalog.Rule{Via: link}, twice + `; ` + other, back, []string{"lines: it has no column enterprise_id"}},
		"owner": {
			"orders",
			catalog.Rule{Kind: catalog.Tenant, Column: "enterprise_id"},
			`alter table public.orders rename enterprise_id to owner`, `alter table public.orders rename owner to enterprise_id`,
			[]string{"orders: the catalogue says that the column enterprise_id names the tenant", "lines: its foreign key " + link + " leads to orders"},
		},
		"keyless": {"names", catalog.Rule{}, `alter table public.names drop constraint names_pkey; drop index public.names_tenant`, `alter table public.names add primary key (name)`, []string{"names: it has no primary key"}}, // of the tenant by its column
		"column":  {"names", catalog.Rule{Column: "enterprise_id"}, `alter table public.names rename enterprise_id to owner`, `alter table public.names rename owner to enterprise_id`, []string{"names: it has no column enterprise_id"}},
	} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			s := setup(t, tenant)
			s.p.Catalogue.Tables = maps.Clone(s.p.Catalogue.Tables)
			if c.rule != (catalog.Rule{}) {
				s.p.Catalogue.Tables[c.table] = c.rule
			}
			s.command("request", `{}`)
			require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
			target := s.p.Server.Address("tenant_"+tenant, "")
			s.twice = true
			databasetest.Exec(t, s.p.Source, c.sql)
			databasetest.Exec(t, target, `truncate public.remarks`) // which would be named first
			refused := func(named ...string) {
				for _, body := range []string{`{}`, `{"keepWrites":true}`} {
					s.command("revert", body)
					require.Equal(t, machine.Ready, s.e.State, body)
					for _, name := range named {
						require.Contains(t, s.e.LastError.Message, name, body)
					}
					require.NoError(t, s.enter(s.e.Data.(*machine.Data).Database.Credentials), "it is let in again")
				}
			}
			refused(c.named...)
			databasetest.Exec(t, target, `truncate public.`+c.table+` cascade; insert into public.settings values (substr(current_database(), 8), 'since', 'x')`)
			refused(c.named[0]) // the tenant has deleted them, and they would come back

			databasetest.Exec(t, s.p.Source, c.mends)
			require.NotEmpty(t, databasetest.Rows(t, s.p.Source, c.table, tenant))
			others := databasetest.Rows(t, s.p.Source, c.table, "other")
			s.command("revert", `{"keepWrites":true}`)
			require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
			require.Empty(t, databasetest.Rows(t, s.p.Source, c.table, tenant))
			require.Equal(t, others, databasetest.Rows(t, s.p.Source, c.table, "other"))
			require.Equal(t, "1", databasetest.Ask(t, s.p.Source, `select count(*)::text from public.settings where enterprise_id = $1 and key = 'since'`, tenant))
		})
	}
}

// linked is what the rows of lines are told by.
const linked = `alter table public.lines add constraint lines_order_id_fkey foreign key (order_id) references public.orders on delete cascade`

// A table of no rule may never have been of the tenant's: what the shared database has of it is named, and refuses nothing.
func TestARevertNamesATableOfNoRuleThatWasNotCompared(t *testing.T) {
	t.Parallel()
	s := setup(t, "unruled")
	databasetest.Exec(t, s.p.Source, `delete from public.names where enterprise_id = 'unruled'`)
	s.command("request", `{}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	s.twice = true
	databasetest.Exec(t, s.p.Source, `alter table public.lines drop constraint lines_order_id_fkey; alter table public.names drop constraint names_pkey; drop index public.names_tenant`)
	databasetest.Exec(t, s.p.Server.Address("tenant_unruled", ""), `truncate public.lines cascade; truncate public.names; create table public.codes (code text);
		do $$ begin for n in 1..20 loop execute format('create table public.a%1$s as select 1 as n', n); end loop; end $$`)
	databasetest.Exec(t, s.p.Source, `create table public.codes (code text); insert into public.codes values ('x')`)
	s.p.Catalogue.Tables = maps.Clone(s.p.Catalogue.Tables)
	s.p.Catalogue.Tables["codes"] = catalog.Rule{Kind: catalog.Reference}
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	left := s.e.Data.(*machine.Data).Undone[0].LeftBehind
	require.Equal(t, []string{"table lines, which was not compared", "table remarks, which was not compared", "2 more"}, append(left[:2:2], left[len(left)-1]), "and not names, of which only others have rows, nor codes, which all share")
	require.NotEmpty(t, databasetest.Rows(t, s.p.Source, "lines", "unruled"))
}

// An instance whose rows were moved is refused the same. What its own migrations have made refuses nothing, nor does anything of one that has begun without rows.
func TestAnUndoOfAnInstanceNamesATableThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	for tenant, c := range map[string]struct{ sql, mends, named string }{
		"parted": {`alter table public.lines drop constraint lines_order_id_fkey`, linked, "lines: the catalogue says that it is a child"},
		"owned":  {`alter table public.orders rename enterprise_id to owner`, `alter table public.orders rename owner to enterprise_id`, "orders: the catalogue says that the column enterprise_id names the tenant"},
		"begun":  {`alter table public.lines drop constraint lines_order_id_fkey`, "", ""},
	} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			s := setup(t, tenant)
			s.as = "instance_provisioning"
			s.p.Told = refusesOwn
			s.p.Catalogue.Tables = maps.Clone(s.p.Catalogue.Tables)
			s.p.Catalogue.Tables["lines"], s.p.Catalogue.Tables["orders"] = catalog.Rule{Kind: catalog.Child}, catalog.Rule{Kind: catalog.Tenant, Column: "enterprise_id"}
			s.command("request", fmt.Sprintf(`{"allowEmpty":%t}`, c.named == "")) // as the machine of instances asks for it
			require.Equal(t, machine.Failed, s.e.State)
			s.twice = true
			databasetest.Exec(t, s.p.Server.Address("tenant_"+tenant, ""), `insert into public.lines select min(id), 9, 'since' from public.orders;
				alter table public.settings add column own text; update public.settings set own = 'x'; create table public.own (n int); insert into public.own values (1)`)
			databasetest.Exec(t, s.p.Source, c.sql)
			if c.named != "" {
				for _, body := range []string{`{}`, `{"keepWrites":true}`} {
					s.command("rollback", body)
					d := s.e.Data.(*machine.Data)
					require.Equal(t, machine.RollbackStuck, d.Phase, body)
					require.Contains(t, d.Undone[0].Error, c.named, body)
					require.NotContains(t, d.Undone[0].Error, "has values", body)
					require.NoError(t, s.enter(d.Database.Credentials), "it is let in again")
				}
				databasetest.Exec(t, s.p.Source, c.mends)
			}
			s.command("rollback", `{"keepWrites":true}`)
			require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
			require.Subset(t, s.e.Data.(*machine.Data).Undone[0].LeftBehind, []string{"table own", "column own of settings"})
			if c.named != "" {
				require.Equal(t, "1", databasetest.Ask(t, s.p.Source, `select count(*)::text from public.lines join public.orders on id = order_id where enterprise_id = $1 and article = 'since'`, tenant))
			}
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
