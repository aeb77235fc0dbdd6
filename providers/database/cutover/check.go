package cutover

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/catalog"
)

// Check says what the role of this program lacks in the shared database to fence these tables, and to keep there what it keeps, as the SQL that gives it.
func (s *Source) Check(ctx context.Context, tables []*catalog.Table, online bool) (lacks []string, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `
			select format(gives, current_user, current_database(), names) from pg_roles me, lateral (
				select has_database_privilege(current_database(), 'CREATE'), 'GRANT CREATE ON DATABASE %2$I TO %1$I', ''
				union all select has_schema_privilege('public', 'CREATE'), 'GRANT CREATE ON SCHEMA public TO %1$I', ''
				union all select rolreplication or not $3 or exists (select from pg_roles m where m.rolname in ('rds_replication', 'rds_superuser') and pg_has_role(m.oid, 'USAGE')), 'ALTER ROLE %1$I REPLICATION', ''
				union all select false, 'OWNER TO %1$I, or to a role that is granted to it, of %3$s', string_agg(c.oid::regclass::text, ', ' order by c.oid::regclass::text)
					from pg_class c where (c.oid = any($1::text[]::regclass[]) or c.oid = to_regclass($2)) and not pg_has_role(c.relowner, 'USAGE') having count(*) > 0
			) as needs (has, gives, names) where me.rolname = current_user and not me.rolsuper and not has`, Fenced(tables), s.runtime(), online)
		if err == nil {
			lacks, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	return lacks, err
}
