package admin

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Inventory is what a server has of tenants: by its register, and by what Postgres says.
type Inventory struct {
	Register         []Database
	Databases, Roles []string // that were made for sessions, by their comments
	Aside            []string // databases that were put away, and will be dropped
	Closed           []string // the names that those had, which their roles have
	Overdue          []string // of Aside, those whose grace period has been over for two hours
}

// Inventory reads all of it. A server on which nothing was set up has none.
func (s *Server) Inventory(ctx context.Context) (all Inventory, err error) {
	if all.Register, err = s.Databases(ctx); pg.NotSetUp(err) {
		return Inventory{}, nil
	}
	if err != nil {
		return all, err
	}
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select
			coalesce((select array_agg(datname::text order by datname) from pg_database where shobj_description(oid, 'pg_database') like 'instar session %'), '{}'),
			coalesce((select array_agg(rolname::text order by rolname) from pg_roles where shobj_description(oid, 'pg_authid') like 'instar session %'), '{}'),
			coalesce(array_agg(stored_as order by stored_as), '{}'), coalesce(array_agg(name order by name), '{}'),
			coalesce(array_agg(stored_as order by stored_as) filter (where drop_after < now() - interval '2 hours'), '{}') from instar.put_away`).
			Scan(&all.Databases, &all.Roles, &all.Aside, &all.Closed, &all.Overdue)
	})
	return all, err
}
