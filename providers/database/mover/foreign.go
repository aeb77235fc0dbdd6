package mover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// foreign is a foreign key of the source, with names as SQL writes them.
type foreign struct {
	Name, Child, Parent string
	Value, Given, Same  string // of a row of the child: its values as a text, that it has them, and that a row p of the parent has the same
	Into                bool   // it leads to the table that was asked about, from one that is not moved
}

// Targets are those of the rows that the target has.
func (m *Mover) Targets(ctx context.Context, of []*Keys) (list []*Keys, err error) {
	err = m.both(ctx, func(_, target *pgx.Conn) error {
		for _, k := range of {
			has := &Keys{Table: k.Table}
			for _, within := range k.batches() {
				all, err := m.hashes(ctx, target, k.Table, within)
				if err != nil {
					return fmt.Errorf("target, table %s: %w", k.Table, err)
				}
				for key := range all {
					has.Add(strings.Split(key, "\x00"))
				}
			}
			if has.Len() > 0 {
				list = append(list, has)
			}
		}
		return nil
	})
	return list, err
}

// orphans are values of foreign keys that lead to no row.
type orphans map[foreign][]string

// orphans are those of some rows of the source, and those that tables which are not moved have to their table. Between tables that are moved, foreign keys hold as they do in the target.
func (m *Mover) orphans(ctx context.Context, tx pgx.Tx, k *Keys) (orphans, error) {
	keys, err := m.foreign(ctx, tx, k.Table)
	if err != nil {
		return nil, fmt.Errorf("table %s: cannot read its foreign keys: %w", k.Table, err)
	}
	found := orphans{}
	for _, f := range keys {
		conditions := k.batches()
		if f.Into {
			conditions = []string{"true"} // which rows have referred to those that went is not known
		}
		for _, within := range conditions {
			rows, err := tx.Query(ctx, fmt.Sprintf(`select distinct %s from %s %s where %s and %s and not exists (select from %s p where %s)`, f.Value, f.Child, catalog.Alias, f.Given, within, f.Parent, f.Same))
			var list []string
			if err == nil {
				list, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			if err != nil {
				return nil, fmt.Errorf("table %s: cannot check the foreign key %s: %w", f.Child, f.Name, err)
			}
			found[f] = append(found[f], list...)
		}
	}
	return found, nil
}

// referring checks the foreign keys of what was brought back: they were not, in a session of a replica. Those that led nowhere before are nobody's doing here.
func (m *Mover) referring(ctx context.Context, tx pgx.Tx, k *Keys, before orphans) error {
	now, err := m.orphans(ctx, tx, k)
	if err != nil {
		return err
	}
	for f, values := range now {
		known := map[string]bool{}
		for _, v := range before[f] {
			known[v] = true
		}
		if slices.ContainsFunc(values, func(v string) bool { return !known[v] }) {
			return pg.Refuse("table %s: its foreign key %s would lead to rows of %s that are not in the shared database", f.Child, f.Name, f.Parent)
		}
	}
	return nil
}

// foreign are the foreign keys that lead from a table, and those that lead to it from tables that are not moved.
func (m *Mover) foreign(ctx context.Context, tx pgx.Tx, t *catalog.Table) ([]foreign, error) {
	moved := make([]string, len(m.Tables))
	for i, t := range m.Tables {
		moved[i] = t.Quoted()
	}
	rows, err := tx.Query(ctx, `
		select conname::text, conrelid::regclass::text, confrelid::regclass::text,
			'jsonb_build_array(' || string_agg(mine, ', ' order by n) || ')::text', string_agg(mine || ' is not null', ' and '), string_agg('p.' || quote_ident(t.attname) || ' = ' || mine, ' and '),
			conrelid <> $1::text::regclass
		from pg_constraint c cross join lateral unnest(conkey, confkey) with ordinality k(of_child, of_parent, n)
			join lateral (select $3::text || '.' || quote_ident(attname) as mine from pg_attribute where attrelid = c.conrelid and attnum = of_child) f on true
			join pg_attribute t on t.attrelid = c.confrelid and t.attnum = of_parent
		where contype = 'f' and conparentid = 0 and convalidated
			and (conrelid = $1::text::regclass or confrelid = $1::text::regclass and conrelid not in (select name::regclass from unnest($2::text[]) name))
		group by c.oid, conname, conrelid, confrelid`, t.Quoted(), moved, catalog.Alias)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[foreign])
}
