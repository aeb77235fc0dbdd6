package catalog

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Unlike says what another database has otherwise than the tables that are moved into it, in a way that keeps their rows out or makes them other rows. Keys, constraints and triggers are not compared.
func Unlike(ctx context.Context, conn *pgx.Conn, c Catalogue, tables []*Table) ([]Problem, error) {
	i, err := shapes(ctx, conn, c)
	if err != nil {
		return nil, err
	}
	there := map[string]*Table{}
	for _, t := range i.all {
		there[t.String()] = t
	}
	for _, t := range tables {
		if into := there[t.String()]; into != nil {
			i.unlike(t, into)
		} else {
			i.problem(t, false, "it is not there")
		}
	}
	return i.Problems, nil
}

// shapes are the tables of a database with their columns, and nothing else of them.
func shapes(ctx context.Context, conn *pgx.Conn, c Catalogue) (*inspection, error) {
	i := &inspection{Catalogue: c, conn: conn, of: map[uint32]*Table{}, raw: map[uint32]*relation{}}
	for _, step := range []func(context.Context) error{i.relations, i.columns} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return i, nil
}

func (i *inspection) unlike(t, into *Table) {
	for n := range t.Columns {
		c := &t.Columns[n]
		switch other := into.column(c.Name); {
		case other == nil:
			i.problem(t, false, "it has no column %s (%s)", c.Name, c.Type)
		case c.Generated != other.Generated:
			i.problem(t, false, "its column %s is generated in one of the two databases only", c.Name)
		case !other.takes(c):
			i.problem(t, false, "its column %s is %s, and %s in the shared database", c.Name, other.Type, c.Type)
		}
	}
	for n := range into.Columns {
		if c := &into.Columns[n]; c.Required && t.column(c.Name) == nil {
			i.problem(t, false, "its column %s, which the shared database lacks, is never null and has no default", c.Name)
		}
	}
}

const varchar = "character varying"

// takes reports whether every value of another column can be one of this column, and stays the same. Types of extensions and enums are told by their names: which schema they are in makes no difference to a value.
func (c *Column) takes(from *Column) bool {
	base := func(c *Column) string {
		name := c.Base[strings.LastIndexByte(c.Base, '.')+1:]
		if of, ok := strings.CutPrefix(name, varchar); ok {
			return "text" + of
		}
		return name
	}
	return base(c) == base(from) && (c.Modifier < 0 || c.Modifier == from.Modifier || from.Modifier >= 0 && wider(strings.TrimSuffix(c.Base, "[]"), from.Modifier, c.Modifier))
}

// wider reports whether a type with a modifier has all values that it has with another one.
func wider(base string, from, to int32) bool {
	switch base {
	case varchar, "character", "bit varying", "time without time zone", "time with time zone", "timestamp without time zone", "timestamp with time zone":
		return from <= to
	case "numeric": // precision and scale, behind the four bytes of a header
		return (from-4)&0xffff == (to-4)&0xffff && (from-4)>>16 <= (to-4)>>16
	default:
		return false
	}
}
