package catalog

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Beyond says what another database has that a comparison with the tables of a report does not show: tables with rows and columns with values that the shared database lacks, as after migrations that only the other one got.
// A default is no value.
func Beyond(ctx context.Context, conn *pgx.Conn, c Catalogue, r *Report) ([]Problem, error) {
	i := &inspection{Catalogue: c, conn: conn, of: map[uint32]*Table{}, raw: map[uint32]*relation{}}
	for _, step := range []func(context.Context) error{i.relations, i.columns} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	shared := map[string]bool{}
	for _, t := range r.Left {
		shared[t.String()] = true
	}
	for _, p := range r.Problems {
		shared[p.Table] = true
	}
	for _, t := range i.all {
		of := r.Table(t.String())
		if of == nil && (shared[t.String()] || c.Tables[t.String()].Kind == Skip) {
			continue
		}
		if err := i.beyond(ctx, t, of); err != nil {
			return nil, err
		}
	}
	return i.Problems, nil
}

func (i *inspection) beyond(ctx context.Context, t, of *Table) error {
	if of == nil {
		has, err := i.any(ctx, `select from `+t.Quoted())
		if err == nil && has {
			i.problem(t, false, "the shared database has no such table")
		}
		return err
	}
	for n := range t.Columns {
		c := &t.Columns[n]
		if c.Generated || of.column(c.Name) != nil {
			continue
		}
		where := pg.Ident(c.Name) + ` is not null`
		var value *string
		if err := i.conn.QueryRow(ctx, `select max(pg_get_expr(d.adbin, d.adrelid)) from pg_attrdef d join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum where a.attrelid = $1 and a.attname = $2`,
			t.oid, c.Name).Scan(&value); err != nil {
			return err
		}
		if value != nil {
			where = pg.Ident(c.Name) + `::text is distinct from (` + *value + `)::text`
		}
		has, err := i.any(ctx, `select from `+t.Quoted()+` where `+where)
		if err != nil {
			return err
		}
		if has {
			i.problem(t, false, "its column %s, which the shared database lacks, has values", c.Name)
		}
	}
	return nil
}

func (i *inspection) any(ctx context.Context, query string) (has bool, err error) {
	err = i.conn.QueryRow(ctx, `select exists (`+query+`)`).Scan(&has)
	return has, err
}
