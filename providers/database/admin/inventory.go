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

// Inventory reads all of it, as it was at one moment: between two, a database may be put away. A server on which nothing was set up has none.
func (s *Server) Inventory(ctx context.Context) (all Inventory, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if all.Register, err = registered(ctx, tx); err != nil {
				return err
			}
			return tx.QueryRow(ctx, `select
				coalesce((select array_agg(datname::text order by datname) from pg_database where shobj_description(oid, 'pg_database') like 'instar session %'), '{}'),
				coalesce((select array_agg(rolname::text order by rolname) from pg_roles where shobj_description(oid, 'pg_authid') like 'instar session %'), '{}'),
				coalesce(array_agg(stored_as order by stored_as), '{}'), coalesce(array_agg(name order by name), '{}'),
				coalesce(array_agg(stored_as order by stored_as) filter (where drop_after < now() - interval '2 hours'), '{}') from instar.put_away`).
				Scan(&all.Databases, &all.Roles, &all.Aside, &all.Closed, &all.Overdue)
		})
	})
	if pg.NotSetUp(err) && all.Register == nil {
		return Inventory{}, nil
	}
	return all, err
}
