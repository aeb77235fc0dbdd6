package cutover

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Tenant is what a shared database has of moves of one tenant.
type Tenant struct {
	Enterprise string   // empty where only triggers are left
	Session    string   // that has the tenant, or had it last
	Ended      bool     // the session
	Switched   bool     // by the session, which has not led the routing back
	Away       bool     // the routing leads elsewhere, or the tenant is closed
	Fenced     []string // tables that refuse its writers
	Passed     []string // tables of which a fence that was lifted could not be dropped yet
	Triggers   string   // the name of those of its fence, see [Source.Triggers]
}

// Tenants are those of which a shared database has something of moves.
func (s *Source) Tenants(ctx context.Context) (list []Tenant, err error) {
	fences, passed := map[string][]string{}, map[string][]string{}
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `
			select substr(tgname, length($1) + 1, 12), prosrc = $2, array_agg(distinct tgrelid::regclass::text order by tgrelid::regclass::text) from pg_trigger join pg_proc p on p.oid = tgfoid
			where starts_with(tgname, $1) group by 1, 2 order by 1`, fencePrefix, passes)
		if err != nil {
			return err
		}
		var mark string
		var tables []string
		var pass bool
		if _, err := pgx.ForEachRow(rows, []any{&mark, &pass, &tables}, func() error {
			of := fences
			if pass {
				of = passed
			}
			of[mark], tables = tables, nil
			return nil
		}); err != nil {
			return err
		}
		rows, err = conn.Query(ctx, `
			select a.enterprise_id, a.session, a.ended, a.previous is not null, coalesce(r.isolation_mode::text, $1) <> $1 or coalesce(r.database_name, '') <> '' from instar.attempt a left join `+s.runtime()+` r on `+SameTenant(s.runtime())+` order by 1`, Shared)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Tenant, err error) {
			return t, row.Scan(&t.Enterprise, &t.Session, &t.Ended, &t.Switched, &t.Away)
		})
		return err
	})
	for i := range list {
		of := Source{Enterprise: list[i].Enterprise}
		list[i].Triggers, list[i].Fenced, list[i].Passed = of.Triggers(), fences[of.mark()], passed[of.mark()]
		delete(fences, of.mark())
		delete(passed, of.mark())
	}
	for mark, tables := range fences {
		list = append(list, Tenant{Ended: true, Fenced: tables, Triggers: triggers(mark)})
	}
	for mark, tables := range passed {
		list = append(list, Tenant{Ended: true, Passed: tables, Triggers: triggers(mark)})
	}
	return list, err
}
