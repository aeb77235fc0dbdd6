package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Beyond says what another database has, and the shared one lacks, that holds something: a comparison with the tables of a report does not show it. Behind are all such tables and columns, by name. Problems are of the columns among them
// without a default: one with a default has values by itself, and a table may have got its rows by a migration: of those nobody can tell who has written them.
func Beyond(ctx context.Context, conn *pgx.Conn, c Catalogue, r *Report) (problems []Problem, behind []string, err error) {
	err = conn.QueryRow(ctx, `select array_agg(nspname::text) from pg_namespace where nspname = any ($1) or nspname <> all ($2) and nspname !~ '^pg_' and nspname <> 'instar'`, c.schemas(), r.AllSchemas).Scan(&c.Schemas)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the schemas: %w", err)
	}
	i, err := shapes(ctx, conn, c)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range i.all {
		of := r.Table(t.String())
		if of == nil {
			has, err := i.filled(ctx, t, r)
			if err != nil {
				return nil, nil, err
			}
			if has {
				behind = append(behind, "table "+t.String())
			}
			continue
		}
		for n := range t.Columns {
			if c := &t.Columns[n]; !c.Generated && of.column(c.Name) == nil {
				has, err := i.valued(ctx, t, c)
				if err != nil {
					return nil, nil, err
				}
				if has {
					behind = append(behind, fmt.Sprintf("column %s of %s", c.Name, t))
				}
			}
		}
	}
	return i.Problems, behind, nil
}

// filled reports whether a table that is not moved has rows, unless it is skipped.
func (i *inspection) filled(ctx context.Context, t *Table, r *Report) (bool, error) {
	same := func(left *Table) bool { return left.String() == t.String() }
	if i.raw[t.oid].Kind == "f" || i.Catalogue.Tables[t.String()].Kind == Skip || slices.ContainsFunc(r.Left, same) {
		return false, nil
	}
	has, err := i.maybe(ctx, t.Quoted())
	return has || i.raw[t.oid].Policies, err
}

// valued reports whether a column has values other than its default, and makes a problem of it where it has none. What a default calls may do something, or be another value each time: it is not asked, and any value counts.
func (i *inspection) valued(ctx context.Context, t *Table, c *Column) (has bool, err error) {
	var of bool
	var value string
	err = i.conn.QueryRow(ctx, `
		select a.atthasdef or a.attidentity <> '' or y.typdefault is not null, coalesce(pg_get_expr(d.adbin, d.adrelid), '')
		from pg_attribute a join pg_type y on y.oid = a.atttypid left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum where a.attrelid = $1 and a.attname = $2`, t.oid, c.Name).Scan(&of, &value)
	if err != nil {
		return false, err
	}
	name := pg.Ident(c.Name)
	where := name + ` is not null`
	if value != "" && !strings.Contains(value, "(") {
		where = fmt.Sprintf(`%s::text <> (%s)::%s::text`, name, value, c.Type) // not every type can be compared
	}
	if of {
		return i.maybe(ctx, t.Quoted()+` where `+where)
	}
	if has, err = exists(ctx, i.conn, t.Quoted()+` where `+where); has {
		i.problem(t, false, "its column %s, which the shared database lacks, has values", c.Name)
	}
	return has, err
}

// maybe is exists of what refuses nothing: where Postgres does not say, as this role may not read it, there may be rows.
func (i *inspection) maybe(ctx context.Context, from string) (bool, error) {
	has, err := exists(ctx, i.conn, from)
	if again, _ := pg.Transient(err); pg.State(err) != "" && !again {
		return true, nil
	}
	return has, err
}

// HasRows reports whether a database has a table, as problems name it, with rows.
func HasRows(ctx context.Context, conn *pgx.Conn, table string) (has bool, err error) {
	schema, name, other := strings.Cut(table, ".")
	if !other {
		schema, name = "public", table
	}
	table = pg.Ident(schema, name)
	if err := conn.QueryRow(ctx, `select to_regclass($1) is not null`, table).Scan(&has); err != nil || !has {
		return false, err
	}
	return exists(ctx, conn, table)
}

func exists(ctx context.Context, conn *pgx.Conn, from string) (has bool, err error) {
	err = conn.QueryRow(ctx, `select exists (select from `+from+`)`).Scan(&has)
	return has, err
}
