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

// CheckRuntime says what the table of the runtime lacks, where the application has one of its own: it is read and written by these columns.
func (s *Source) CheckRuntime(ctx context.Context) (problems []string, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `
			with t as (select to_regclass($1) as oid), a as (select attname::text as name, atttypid as type, attnum, attnotnull and not atthasdef and attidentity = '' as needed, typcategory::text as category
				from t join pg_attribute on attrelid = t.oid and attnum > 0 and not attisdropped join pg_type y on y.oid = atttypid)
			select format('its column %s is missing, or not of type %s', c.name, c.wants) from (values
					('enterprise_id', 'text, uuid or an integer', 'S', array['uuid', 'bigint', 'integer', 'smallint']), ('isolation_mode', 'text', 'SE', array[]::text[]), ('status', 'text', 'SE', array[]::text[]), ('database_id', 'text', 'S', array[]::text[]),
					('database_host', 'text', 'S', array[]::text[]), ('database_name', 'text', 'S', array[]::text[]), ('updated_at', 'timestamptz', 'D', array[]::text[])
				) c (name, wants, categories, types), t where t.oid is not null and not exists (select from a where a.name = c.name and (strpos(c.categories, category) > 0 or type::regtype::text = any(c.types)))
			union all select format('its column epoch is not of type bigint, but %s', type::regtype) from a where name = 'epoch' and type <> 'bigint'::regtype
			union all select format('the type of its column %s lacks the value %L', a.name, v.value) from a join (values ('isolation_mode', 'shared'), ('isolation_mode', 'dedicated_db'), ('status', 'active'), ('status', 'deprovisioned')) v (name, value) using (name)
				where a.category = 'E' and not exists (select from pg_enum where enumtypid = a.type and enumlabel = v.value)
			union all select format('its column %s is never null and has no default: a tenant that has no row yet gets one without it', name) from a
				where needed and name not in ('enterprise_id', 'isolation_mode', 'status', 'database_id', 'database_host', 'database_name', 'updated_at', 'epoch')
			union all select 'its column enterprise_id is not its key, nor of a unique index of its own' from t where t.oid is not null and not exists (
				select from pg_index i join a on a.name = 'enterprise_id' where i.indrelid = t.oid and i.indisunique and i.indisvalid and i.indpred is null and i.indnkeyatts = 1 and i.indkey[0] = a.attnum)
			union all select format('its column enterprise_id is a uuid, and %L is none as Postgres writes it: request the tenant with such an enterpriseId', $2::text) from a
				where name = 'enterprise_id' and type = 'uuid'::regtype and $2 !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
			union all select format('its column enterprise_id is of type %s, and %L is no number as Postgres writes it there: request the tenant with such an enterpriseId', a.type::regtype, $2::text)
				from a join (values ('bigint', 9223372036854775807), ('integer', 2147483647), ('smallint', 32767)) i (type, most) on i.type = a.type::regtype::text
				where a.name = 'enterprise_id' and case when $2 ~ '^(0|-?[1-9][0-9]{0,18})$' then $2::numeric not between -most - 1 and most else true end`, s.runtime(), s.Enterprise)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, problem := range list {
			problems = append(problems, s.runtime()+": "+problem)
		}
		return err
	})
	return problems, err
}

// Status is that of the tenant's row, or "" where there is none.
func (s *Source) Status(ctx context.Context) (string, error) {
	now, err := s.named(ctx)
	return now.Status, err
}
