package catalog

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Beyond says which columns of another database, that the shared one lacks, have values: a comparison with the tables of a report does not show them. A column with a default has values by itself, and a table that only the other
// database has may have got its rows by a migration: of those nobody can tell.
func Beyond(ctx context.Context, conn *pgx.Conn, c Catalogue, r *Report) ([]Problem, error) {
	i, err := shapes(ctx, conn, c)
	if err != nil {
		return nil, err
	}
	for _, t := range i.all {
		of := r.Table(t.String())
		if of == nil {
			continue
		}
		for n := range t.Columns {
			if c := &t.Columns[n]; !c.Generated && of.column(c.Name) == nil {
				if err := i.valued(ctx, t, c); err != nil {
					return nil, err
				}
			}
		}
	}
	return i.Problems, nil
}

// valued names a column without a default that has values.
func (i *inspection) valued(ctx context.Context, t *Table, c *Column) error {
	var of bool
	err := i.conn.QueryRow(ctx, `select a.atthasdef or a.attidentity <> '' or y.typdefault is not null from pg_attribute a join pg_type y on y.oid = a.atttypid where a.attrelid = $1 and a.attname = $2`, t.oid, c.Name).Scan(&of)
	if err != nil || of {
		return err
	}
	has, err := exists(ctx, i.conn, t.Quoted()+` where `+pg.Ident(c.Name)+` is not null`)
	if has {
		i.problem(t, false, "its column %s, which the shared database lacks, has values", c.Name)
	}
	return err
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
