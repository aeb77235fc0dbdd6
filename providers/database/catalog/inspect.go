package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// inspection is one look at a database.
type inspection struct {
	Report
	Catalogue
	conn     *pgx.Conn
	all      []*Table
	of       map[uint32]*Table
	raw      map[uint32]*relation
	links    map[uint32][]*Link
	identity map[uint32][]string
	large    bool // there are large objects
}

// Inspect reads the tables of a shared database and says what can be moved.
func Inspect(ctx context.Context, conn *pgx.Conn, c Catalogue) (*Report, error) {
	i := &inspection{Catalogue: c, conn: conn, of: map[uint32]*Table{}, raw: map[uint32]*relation{}, links: map[uint32][]*Link{}, identity: map[uint32][]string{}}
	if err := i.read(ctx); err != nil {
		return nil, err
	}
	i.classify()
	for _, t := range i.all {
		i.judge(t)
	}
	i.order()
	return &i.Report, nil
}

func (i *inspection) oids() []uint32 {
	list := make([]uint32, len(i.all))
	for n, t := range i.all {
		list[n] = t.oid
	}
	return list
}

func (i *inspection) problem(t *Table, online bool, format string, args ...any) {
	i.Problems = append(i.Problems, Problem{Table: t.String(), Reason: fmt.Sprintf(format, args...), Online: online})
}

// classify gives every table its kind: first by rule and column, then children from their parents on.
func (i *inspection) classify() {
	known := map[string]bool{}
	for _, t := range i.all {
		rule, column := i.Catalogue.Tables[t.String()], i.column(t)
		known[t.String()] = true
		c := t.column(column)
		switch {
		case rule.Kind == Tenant, rule.Kind == "" && c != nil:
			t.Kind, t.Column = Tenant, column
			if c != nil {
				t.ColumnType = c.Type
			}
		case rule.Kind == Reference, rule.Kind == Skip, rule.Kind == Child:
			t.Kind = rule.Kind
		}
	}
	for name := range i.Catalogue.Tables {
		if !known[name] {
			i.Problems = append(i.Problems, Problem{Table: name, Reason: "the catalogue names it, and there is no such table"})
		}
	}
	slices.SortFunc(i.Problems, func(a, b Problem) int { return strings.Compare(a.Table, b.Table) })
	for again := true; again; {
		again = false
		for _, t := range i.all {
			if (t.Kind == "" || t.Kind == Child) && t.Parent == nil {
				again = i.adopt(t) || again
			}
		}
	}
}

// adopt finds the parent of a child: the only foreign key, or the named one, whose columns are never null and which leads to a table that
// belongs to tenants.
func (i *inspection) adopt(t *Table) bool {
	via := i.Catalogue.Tables[t.String()].Via
	var found []*Link
	for _, l := range i.links[t.oid] {
		owned := l.To != nil && l.To != t && (l.To.Kind == Tenant || l.To.Kind == Child && l.To.Parent != nil)
		never := !slices.ContainsFunc(l.From, func(name string) bool { return !t.column(name).NotNull })
		if owned && (via == l.Name || via == "" && never) {
			found = append(found, l)
		}
	}
	if len(found) != 1 {
		return false
	}
	t.Kind, t.Parent = Child, found[0]
	return true
}

// judge says why a table cannot be moved.
func (i *inspection) judge(t *Table) {
	r := i.raw[t.oid]
	if t.Kind == Skip {
		return
	}
	switch {
	case t.Kind == "":
		i.problem(t, false, "it has no column %s, and no single foreign key that is never null leads to a table that has: say in the catalogue whether it is a reference or skipped, or by which foreign key its rows belong to a tenant", i.column(t))
		return
	case t.Kind == Tenant && t.ColumnType == "":
		i.problem(t, false, "the catalogue says that the column %s names the tenant, and there is none", t.Column)
	case t.Kind == Child && t.Parent == nil:
		i.problem(t, false, "the catalogue says that it is a child, and no single foreign key leads to a table of tenants (via names one)")
	case t.Kind == Child && !t.told():
		i.problem(t, false, "its foreign key %s leads to %s, of which it cannot be told whose rows it has", t.Parent.Name, t.Parent.To)
	case t.Kind == Tenant && !t.column(t.Column).NotNull && slices.ContainsFunc(t.Key, func(c Column) bool { return c.Name == t.Column }):
		i.problem(t, false, "its key contains %s, which may be null", t.Column)
	}
	switch {
	case r.Kind == "f":
		i.problem(t, false, "it is a foreign table: its rows are elsewhere; skip it")
		return
	case r.Inherits:
		i.problem(t, false, "it inherits from another table, or another one from it: only declarative partitions are moved")
	case r.Policies:
		i.problem(t, false, "row-level security hides rows from the role of the source: give it BYPASSRLS")
	}
	if len(t.Key) == 0 {
		i.problem(t, false, "it has no primary key, and no unique index on columns that are never null: without one its rows cannot be told apart, read in ranges or compared")
	}
	for _, c := range t.Columns {
		if i.large && (c.Type == "oid" || c.Type == "lo" || strings.HasSuffix(c.Type, ".lo")) {
			i.problem(t, false, "the column %s may refer to large objects, which are not moved: store their bytes in the table, or skip it", c.Name)
		}
	}
	i.judgeLinks(t)
	i.judgeOnline(t, r)
}

// judgeLinks: what a row that is moved refers to is moved, too.
func (i *inspection) judgeLinks(t *Table) {
	for _, l := range i.links[t.oid] {
		switch {
		case l.To == nil:
			i.problem(t, false, "its foreign key %s leads out of the schemas that are moved", l.Name)
		case l.To.Kind == Skip:
			i.problem(t, false, "its foreign key %s leads to %s, which is skipped", l.Name, l.To)
		case t.Kind == Reference && l.To.Kind != Reference:
			i.problem(t, false, "it is a reference, copied whole, and its foreign key %s leads to %s, of which only one tenant's rows are copied", l.Name, l.To)
		}
	}
}

// judgeOnline: tables of tenants are replicated, and of them and of children it is noted which rows are written. So it is of what is copied whole, where the log tells it; else that is compared under the fence. A filtered publication makes every UPDATE and DELETE
// of the shared table fail, for all tenants, unless the replica identity has the columns of the filter.
func (i *inspection) judgeOnline(t *Table, r *relation) {
	if t.Kind != Tenant && t.Kind != Child {
		return
	}
	if r.Persistence != "p" {
		i.problem(t, true, "it is unlogged: nothing of it is replicated")
		return
	}
	if t.Partitioned {
		i.problem(t, true, "it is partitioned: move it offline")
	}
	if t.Kind == Child {
		return
	}
	t.Identity = r.Replica == "f" || slices.Contains(i.identity[t.oid], t.Column)
	if !t.Identity {
		i.problem(t, true, "its replica identity does not have %s, by which rows would be filtered, and every UPDATE would fail for all tenants: create a unique index on (%s, its key) and ALTER TABLE %s REPLICA IDENTITY USING INDEX",
			t.Column, t.Column, t.Quoted())
	}
}

// order puts parents before their children, and what has no order by name.
func (i *inspection) order() {
	done := map[*Table]bool{}
	var visit func(t *Table, path map[*Table]bool)
	visit = func(t *Table, path map[*Table]bool) {
		if done[t] || path[t] || !t.told() {
			return
		}
		path[t] = true
		for _, l := range i.links[t.oid] {
			if l.To != nil {
				visit(l.To, path)
			}
		}
		delete(path, t)
		done[t] = true
		if t.Kind == Skip {
			i.Left = append(i.Left, t)
			return
		}
		i.Report.Tables = append(i.Report.Tables, t)
	}
	for _, t := range i.all {
		visit(t, map[*Table]bool{})
	}
}
