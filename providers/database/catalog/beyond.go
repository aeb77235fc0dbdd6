package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Beyond says what another database has that holds something, and that a comparison with the tables of a report does not show, by name: tables and columns that the shared one lacks, and tables that both have and that cannot be compared.
// Problems are of the latter, and of columns without a default: one with a default has values by itself, and a table may have got its rows by a migration: of those nobody can tell who has written them.
func Beyond(ctx context.Context, conn *pgx.Conn, c Catalogue, r *Report) (problems []Problem, behind []string, err error) {
	if err := conn.QueryRow(ctx, `select array_agg(nspname::text) from pg_namespace where nspname !~ '^pg_' and nspname not in ('information_schema', 'instar')`).Scan(&c.Schemas); err != nil {
		return nil, nil, fmt.Errorf("cannot read the schemas: %w", err)
	}
	i, err := shapes(ctx, conn, c)
	if err != nil {
		return nil, nil, err
	}
	shared := map[string]bool{}
	for _, name := range r.AllTables {
		shared[name] = true
	}
	for _, t := range i.all {
		of := r.Table(t.String())
		if of == nil || len(of.Key) == 0 {
			has, err := i.filled(ctx, t, r, shared[t.Schema+"."+t.Name])
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

// filled reports whether a table that is not compared has rows. One that is skipped does not count, nor one of both databases that has no problem, as its schema is not moved.
func (i *inspection) filled(ctx context.Context, t *Table, r *Report, both bool) (bool, error) {
	why := slices.DeleteFunc(r.Refused(false), func(p Problem) bool { return p.Table != t.String() })
	if both && len(why) == 0 || !both && (i.raw[t.oid].Kind == "f" || i.Catalogue.Tables[t.String()].Kind == Skip) {
		return false, nil
	}
	has, err := i.maybe(ctx, t.Quoted())
	has = has || i.raw[t.oid].Policies
	if both && has {
		i.Problems = append(i.Problems, why...)
	}
	return has, err
}

// valued reports whether a column has values other than its default, and makes a problem of it where it has none. What a default calls may do something, or be another value each time: it is not asked, and any value counts.
func (i *inspection) valued(ctx context.Context, t *Table, c *Column) (has bool, err error) {
	var of bool
	var value string
	err = i.conn.QueryRow(ctx, `
		select a.atthasdef or a.attidentity <> '' or y.typdefault is not null, coalesce(pg_get_expr(d.adbin, d.adrelid), pg_get_expr(y.typdefaultbin, 0), '')
		from pg_attribute a join pg_type y on y.oid = a.atttypid left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum where a.attrelid = $1 and a.attname = $2`, t.oid, c.Name).Scan(&of, &value)
	if err != nil {
		return false, err
	}
	name := pg.Ident(c.Name) + `::text` // not every type can be compared
	where := name + ` is not null`
	if strings.HasPrefix(value, "NULL::") { // as Postgres keeps DEFAULT NULL of a type with a length or precision
		of = false
	} else if value != "" && !strings.Contains(value, "(") {
		where += fmt.Sprintf(` and %s is distinct from (%s)::%s::text`, name, value, c.Type)
	}
	if of {
		return i.maybe(ctx, t.Quoted()+` where `+where)
	}
	if has, err = exists(ctx, i.conn, t.Quoted()+` where `+where); has {
		i.problem(t, false, "its column %s, which the shared database lacks, has values", c.Name)
	}
	return has, err
}

// maybe is exists of what is named only: where Postgres does not say, as this role may not read it, there may be rows.
func (i *inspection) maybe(ctx context.Context, from string) (bool, error) {
	has, err := exists(ctx, i.conn, from)
	if again, _ := pg.Transient(err); pg.State(err) != "" && !again {
		return true, nil
	}
	return has, err
}

func exists(ctx context.Context, conn *pgx.Conn, from string) (has bool, err error) {
	err = conn.QueryRow(ctx, `select exists (select from `+from+`)`).Scan(&has)
	return has, err
}
