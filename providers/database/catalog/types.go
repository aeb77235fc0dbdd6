package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Kind says whose rows a table has.
type Kind string

// The kinds.
const (
	Tenant    Kind = "tenant"
	Child     Kind = "child"
	Reference Kind = "reference"
	Skip      Kind = "skip"
)

// Rule is what the configuration says of a table.
type Rule struct {
	Kind   Kind   `json:"kind,omitempty"`   // derived when empty
	Column string `json:"column,omitempty"` // of a tenant table, instead of that of the catalogue
	Via    string `json:"via,omitempty"`    // of a child: the foreign key that leads to its parent, when there are several
}

// Catalogue is how tenants share a database.
type Catalogue struct {
	Schemas []string        `json:"schemas,omitempty"` // public when empty
	Column  string          `json:"column,omitempty"`  // that names the tenant; enterprise_id when empty
	Tables  map[string]Rule `json:"tables,omitempty"`  // by name; in other schemas than public by schema.name
}

func (c Catalogue) schemas() []string {
	if len(c.Schemas) == 0 {
		return []string{"public"}
	}
	return c.Schemas
}

// column is the one that names the tenant in a table.
func (c Catalogue) column(t *Table) string {
	return cmp.Or(c.Tables[t.String()].Column, c.Column, "enterprise_id")
}

// Column is one of a table.
type Column struct {
	Name      string
	Type      string // as SQL writes it
	NotNull   bool
	Generated bool   // computed from others: never copied, but compared
	Hashable  bool   // its type has a hash function, and values of it that are equal are the same
	Text      bool   // its values in binary depend on the database: a row type, or an array of a type that was made there
	Collated  bool   // its order depends on a collation
	Base      string // its type without domains, length and precision
	Modifier  int32  // length or precision, as Postgres keeps it; -1 is none
	Required  bool   // it is never null, and has no value of its own
}

// Table is one that is moved, or that is left out.
type Table struct {
	Schema, Name string
	Kind         Kind
	Column       string // that names the tenant, of a tenant table
	ColumnType   string
	Parent       *Link // of a child
	Columns      []Column
	Key          []Column // by which its rows are told apart: of the primary key, else of a unique index
	Partitioned  bool
	Identity     bool     // UPDATE and DELETE can be replicated with the tenant's column in the filter
	Sequences    []string // quoted, that its columns take values from
	Rows         int64    // by the statistics, of all tenants; -1 is unknown
	oid          uint32
}

// Link is a foreign key that leads from a child to what it belongs to.
type Link struct {
	To       *Table
	From, On []string // columns, of the child and of the parent
	Name     string
}

// String is the name in texts.
func (t *Table) String() string {
	if t.Schema == "public" {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// Quoted is the name in SQL.
func (t *Table) Quoted() string { return pg.Ident(t.Schema, t.Name) }

// Copied are the names of the columns that are copied, quoted.
func (t *Table) Copied() []string {
	var names []string
	for _, c := range t.Columns {
		if !c.Generated {
			names = append(names, pg.Ident(c.Name))
		}
	}
	return names
}

// Format is the one in which COPY can carry the table between two databases.
func (t *Table) Format() string {
	if slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Text && !c.Generated }) {
		return "text"
	}
	return "binary"
}

// told reports whether [Table.Where] tells whose rows it has. In the shared database that may change at any time, as a foreign key is dropped or a column renamed.
func (t *Table) told() bool {
	switch t.Kind {
	case Tenant:
		return t.ColumnType != ""
	case Child:
		return t.Parent != nil && t.Parent.To.told()
	}
	return t.Kind != ""
}

// Alias is what the table is called in [Table.Where] and [Table.Hash].
const Alias = "t"

// Where is the condition of a tenant's rows, or "true" of a table that is copied whole.
func (t *Table) Where(enterprise string) string { return t.where(Alias, enterprise, 1) }

// WhereAs is the same for rows that are called something else, such as new in a trigger.
func (t *Table) WhereAs(alias, enterprise string) string { return t.where(alias, enterprise, 1) }

// Orphan is the condition of a child's rows whose parent cannot be seen.
func (t *Table) Orphan(alias string) string {
	on := make([]string, len(t.Parent.From))
	for i := range on {
		on[i] = fmt.Sprintf("p.%s = %s.%s", pg.Ident(t.Parent.On[i]), alias, pg.Ident(t.Parent.From[i]))
	}
	return fmt.Sprintf("not exists (select from %s p where %s)", t.Parent.To.Quoted(), strings.Join(on, " and "))
}

func (t *Table) where(alias, enterprise string, depth int) string {
	switch t.Kind {
	case Tenant:
		return fmt.Sprintf("%s.%s operator(pg_catalog.=) %s::%s", alias, pg.Ident(t.Column), pg.Literal(enterprise), t.ColumnType)
	case Child:
		parent := fmt.Sprintf("p%d", depth)
		on := make([]string, len(t.Parent.From))
		for i := range on {
			on[i] = fmt.Sprintf("%s.%s = %s.%s", parent, pg.Ident(t.Parent.On[i]), alias, pg.Ident(t.Parent.From[i]))
		}
		return fmt.Sprintf("exists (select from %s %s where %s and %s)", t.Parent.To.Quoted(), parent, strings.Join(on, " and "), t.Parent.To.where(parent, enterprise, depth+1))
	}
	return "true"
}

// Hash is the expression of a row's hash, the same in every database with the same columns. Rows whose values are equal and not the same, such as 1.5 and 1.50, have different ones.
func (t *Table) Hash() string {
	parts := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		parts[i] = Alias + "." + pg.Ident(c.Name)
		if !c.Hashable {
			parts[i] += `::text collate "C"` // a collation of its own may take other texts for equal
		}
	}
	return fmt.Sprintf("hash_record_extended(row(%s), 0)", strings.Join(parts, ", "))
}

// Problem is why a table cannot be moved, in one of the modes or in all.
type Problem struct {
	Table  string `json:"table"`
	Reason string `json:"reason"`
	Online bool   `json:"online,omitempty"` // only in mode online
}

func (p Problem) String() string { return p.Table + ": " + p.Reason }

// Report is what was found.
type Report struct {
	Tables    []*Table // that are moved, parents before children, as far as there is an order; none of which it cannot be told whose rows it has
	Left      []*Table // of kind skip
	Notes     []string // what is not moved and needs no decision
	Problems  []Problem
	AllTables []string // of the database, as schema.name, also of schemas that are not moved
}

// Refused are the problems of a mode.
func (r *Report) Refused(online bool) []Problem {
	var list []Problem
	for _, p := range r.Problems {
		if online || !p.Online {
			list = append(list, p)
		}
	}
	return list
}

// Table finds one that is moved.
func (r *Report) Table(name string) *Table {
	for _, t := range r.Tables {
		if t.String() == name {
			return t
		}
	}
	return nil
}
