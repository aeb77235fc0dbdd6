package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Own is a tenant's own database, as it is held against the shared one.
type Own struct {
	Conn       *pgx.Conn
	Shared     *pgx.Conn // nil where nothing was moved out of it
	Enterprise string
	Catalogue  Catalogue
	Report     *Report // of the shared one
}

// Beyond is what a comparison of the two with the tables of the report does not show: tables and columns that the shared one lacks, and tables that both have and that cannot be compared.
type Beyond struct {
	Uncompared []Problem // of the latter, with rows: where it is known whose they are, or the configuration has a rule for them, in either database, as the tenant may have deleted them in its own
	Columns    []Problem // of columns without a default, with values: one with a default has values by itself, and a table may have got its rows by a migration: of those nobody can tell who has written them
	Behind     []string  // by name: first tables of which it is not known whose they are, and that have rows in the shared one only, then what holds something in the tenant's own

	unknown []string // the first of these
}

// Beyond looks for it.
func (o *Own) Beyond(ctx context.Context) (b Beyond, err error) {
	c := o.Catalogue
	if err := o.Conn.QueryRow(ctx, `select array_agg(nspname::text) from pg_namespace where nspname !~ '^pg_' and nspname not in ('information_schema', 'instar')`).Scan(&c.Schemas); err != nil {
		return b, fmt.Errorf("cannot read the schemas: %w", err)
	}
	i, err := shapes(ctx, o.Conn, c)
	if err != nil {
		return b, err
	}
	for _, t := range i.all {
		switch of := o.Report.Table(t.String()); {
		case of != nil && len(of.Key) > 0:
			err = i.valued(ctx, t, of, &b)
		case slices.Contains(o.Report.AllTables, t.Schema+"."+t.Name):
			err = o.uncompared(ctx, i, t, &b)
		case i.raw[t.oid].Kind != "f" && c.Tables[t.String()].Kind != Skip:
			var has bool
			if has, err = i.filled(ctx, t); has {
				b.Behind = append(b.Behind, "table "+t.String())
			}
		}
		if err != nil {
			return b, err
		}
	}
	b.Behind = append(b.unknown, b.Behind...)
	return b, nil
}

// uncompared looks at a table of both that is not compared. One without a problem is skipped, or its schema is not moved.
func (o *Own) uncompared(ctx context.Context, i *inspection, t *Table, b *Beyond) error {
	why := slices.DeleteFunc(o.Report.Refused(false), func(p Problem) bool { return p.Table != t.String() })
	if len(why) == 0 {
		return nil
	}
	has, err := i.filled(ctx, t)
	if err != nil {
		return err
	}
	if has {
		b.Uncompared, b.Behind = append(b.Uncompared, why...), append(b.Behind, "table "+t.String())
	}
	of := o.Report.Table(t.String())
	if has || o.Shared == nil || of != nil && of.Kind == Reference { // to which others may have added
		return nil
	}
	from := t.Quoted()
	if of != nil { // it lacks only a key
		from += " " + Alias + " where " + of.Where(o.Enterprise)
	}
	if has, err = exists(ctx, o.Shared, from); err != nil || !has {
		return err
	}
	if _, ruled := o.Catalogue.Tables[t.String()]; ruled || of != nil {
		b.Uncompared = append(b.Uncompared, why...)
	} else {
		b.unknown = append(b.unknown, fmt.Sprintf("table %s, which was not compared", t))
	}
	return nil
}

// filled reports whether a table has rows, or may have some.
func (i *inspection) filled(ctx context.Context, t *Table) (bool, error) {
	has, err := exists(ctx, i.conn, t.Quoted())
	return has || i.raw[t.oid].Policies, err
}

// extra is a column that the shared database lacks.
type extra struct {
	name     string
	byItself bool   // it has a default
	set      string // the condition of a row with another value
}

// valued names columns that the shared database lacks and that have values other than their default. The tenant waits.
func (i *inspection) valued(ctx context.Context, t, of *Table, b *Beyond) error {
	columns, err := i.extra(ctx, t, of)
	if err != nil || len(columns) == 0 {
		return err
	}
	has, err := i.anywhere(ctx, t, columns...)
	if refuses(err) { // one of them, which this role may not read
		has, err = nil, nil
		for _, c := range columns {
			one, err := i.anywhere(ctx, t, c)
			if err != nil && !(c.byItself && refuses(err)) {
				return err
			}
			has = append(has, err != nil || one[0])
		}
	}
	for n, set := range has {
		if !set {
			continue
		}
		b.Behind = append(b.Behind, fmt.Sprintf("column %s of %s", columns[n].name, t))
		if !columns[n].byItself {
			b.Columns = append(b.Columns, Problem{Table: t.String(), Reason: fmt.Sprintf("its column %s, which the shared database lacks, has values", columns[n].name)})
		}
	}
	return err
}

// extra reads the columns of a table that the shared one lacks. What a default calls may do something, or be another value each time: it is not asked, and any value counts.
func (i *inspection) extra(ctx context.Context, t, of *Table) (list []extra, err error) {
	var names []string
	for _, c := range t.Columns {
		if !c.Generated && of.column(c.Name) == nil {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	rows, err := i.conn.Query(ctx, `
		select a.attname, a.atthasdef or a.attidentity <> '' or y.typdefault is not null, coalesce(pg_get_expr(d.adbin, d.adrelid), pg_get_expr(y.typdefaultbin, 0), '')
		from pg_attribute a join pg_type y on y.oid = a.atttypid left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum where a.attrelid = $1 and a.attname = any ($2) order by a.attnum`, t.oid, names)
	if err != nil {
		return nil, err
	}
	var c extra
	var value string
	_, err = pgx.ForEachRow(rows, []any{&c.name, &c.byItself, &value}, func() error {
		name := pg.Ident(c.name)
		c.set = `num_nonnulls(` + name + `) > 0` // also of a row whose columns are null
		if strings.HasPrefix(value, "NULL::") {  // as Postgres keeps DEFAULT NULL of a type with a length or precision
			c.byItself = false
		} else if value != "" && !strings.Contains(value, "(") {
			c.set += fmt.Sprintf(` and %s::text is distinct from (%s)::%s::text`, name, value, t.column(c.name).Type) // not every type can be compared
		}
		list = append(list, c)
		return nil
	})
	return list, err
}

// anywhere reports which of some columns have values in any row. One statement asks for all, and does not stop at the first: it asks the first rows, where most values are found, and then all of them for the columns that have none there.
func (i *inspection) anywhere(ctx context.Context, t *Table, columns ...extra) ([]bool, error) {
	has := make([]bool, len(columns))
	for _, most := range []string{"4096", "all"} {
		var names, ask []string
		var at []int
		for n, c := range columns {
			if !has[n] {
				names, ask, at = append(names, pg.Ident(c.name)), append(ask, `coalesce(bool_or(`+c.set+`), false)`), append(at, n)
			}
		}
		if len(at) == 0 {
			break
		}
		var found []bool
		err := i.conn.QueryRow(ctx, `select array[`+strings.Join(ask, ", ")+`] from (select `+strings.Join(names, ", ")+` from `+t.Quoted()+` limit `+most+`) t`).Scan(&found)
		if err != nil {
			return nil, err
		}
		for n := range at {
			has[at[n]] = found[n]
		}
	}
	return has, nil
}

// refuses reports whether Postgres does not say, and will not do so later.
func refuses(err error) bool {
	again, _ := pg.Transient(err)
	return pg.State(err) != "" && !again
}

// exists reports whether there are rows, or may be some: where Postgres does not say, as this role may not read them, or not all of them.
func exists(ctx context.Context, conn *pgx.Conn, from string) (has bool, err error) {
	err = conn.QueryRow(ctx, `select exists (select from `+from+`)`).Scan(&has)
	if refuses(err) {
		return true, nil
	}
	return has, err
}
