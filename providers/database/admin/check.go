package admin

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// need is what the role of this program has to have on servers from one version on and before another one, and the SQL that gives it: %1$I is the role, %2$I the database.
type need struct {
	from, before int // of server_version_num; 0 does not limit it
	online       bool
	has, gives   string
	try          string // a statement that is undone, instead of has
}

const (
	unfired = `set local session_replication_role = replica` // to copy without triggers
	managed = `exists (select from pg_roles m where m.rolname = 'rds_superuser' and pg_has_role(m.oid, 'USAGE'))`
)

var needs = []need{
	{has: `rolcreatedb and rolcreaterole`, gives: `ALTER ROLE %1$I CREATEDB CREATEROLE`},
	{has: `has_database_privilege(current_database(), 'CREATE')`, gives: `GRANT CREATE ON DATABASE %2$I TO %1$I`}, // for the register
	{has: `pg_has_role('pg_signal_backend', 'USAGE')`, gives: `GRANT pg_signal_backend TO %1$I`},                  // to keep a tenant out while it is sent back
	// Managed servers let roles of their own do what the catalogue says nobody else may, so it is tried.
	{from: 150000, try: unfired, gives: `GRANT SET ON PARAMETER session_replication_role TO %1$I`},
	{before: 150000, try: unfired, gives: `ALTER ROLE %1$I SUPERUSER (before Postgres 15, nobody else copies without triggers)`},
	{online: true, from: 160000, has: `pg_has_role('pg_create_subscription', 'USAGE') or ` + managed, gives: `GRANT pg_create_subscription TO %1$I`},
	{online: true, from: 150000, before: 160000, has: managed, gives: `ALTER ROLE %1$I SUPERUSER (before Postgres 16, nobody else subscribes, which mode online does)`},
}

// Check says what the role of this program lacks to make databases on the server, to fill them, and to take them back, as the SQL that gives it. It fails where the server does not let it in.
func (s *Server) Check(ctx context.Context, online bool) (lacks []string, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		var version int
		if err := conn.QueryRow(ctx, `select current_setting('server_version_num')::int`).Scan(&version); err != nil {
			return err
		}
		for _, n := range needs {
			if n.online && !online || version < n.from || n.before > 0 && version >= n.before {
				continue
			}
			var has bool
			var gives string
			err := conn.QueryRow(ctx, `select rolsuper or `+cmp.Or(n.has, `false`)+`, format($1, current_user, current_database()) from pg_roles where rolname = current_user`, n.gives).Scan(&has, &gives)
			if err == nil && !has && n.try != "" {
				has, err = may(ctx, conn, n.try)
			}
			if err != nil {
				return err
			}
			if !has {
				lacks = append(lacks, gives)
			}
		}
		return nil
	})
	return lacks, err
}

// may reports whether the role may do what is undone at once.
func may(ctx context.Context, conn *pgx.Conn, statement string) (bool, error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, statement)
	if e := tx.Rollback(ctx); err == nil {
		return true, e
	}
	if pg.State(err) == pg.Forbidden {
		err = nil
	}
	return false, err
}
