package mover

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// foreign is a foreign key of the source, with names as SQL writes them.
type foreign struct {
	Name, Child, Parent string
	On, To              []string // columns of the child, and of the parent
	Into                bool     // it leads to the table that was asked about, from one that is not moved
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

// referring checks the foreign keys of what was brought back: they were not, in a session of a replica. Between tables that are moved they hold as they do in the target.
func (m *Mover) referring(ctx context.Context, tx pgx.Tx, k *Keys) error {
	keys, err := m.foreign(ctx, tx, k.Table)
	if err != nil {
		return fmt.Errorf("table %s: cannot read its foreign keys: %w", k.Table, err)
	}
	for _, f := range keys {
		conditions := k.batches()
		if f.Into {
			conditions = []string{"true"} // which rows have referred to those that went is not known
		}
		var given, same []string
		for i := range f.On {
			given = append(given, catalog.Alias+"."+f.On[i]+" is not null")
			same = append(same, "p."+f.To[i]+" = "+catalog.Alias+"."+f.On[i])
		}
		for _, within := range conditions {
			var alone bool
			err := tx.QueryRow(ctx, fmt.Sprintf(`select exists (select from %s %s where %s and %s and not exists (select from %s p where %s))`,
				f.Child, catalog.Alias, strings.Join(given, " and "), within, f.Parent, strings.Join(same, " and "))).Scan(&alone)
			if err != nil {
				return fmt.Errorf("table %s: cannot check the foreign key %s: %w", f.Child, f.Name, err)
			}
			if alone {
				return pg.Refuse("table %s: its foreign key %s would lead to rows of %s that are not in the shared database", f.Child, f.Name, f.Parent)
			}
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
			(select array_agg(quote_ident(attname) order by n) from unnest(conkey) with ordinality k(num, n) join pg_attribute on attrelid = conrelid and attnum = num),
			(select array_agg(quote_ident(attname) order by n) from unnest(confkey) with ordinality k(num, n) join pg_attribute on attrelid = confrelid and attnum = num),
			conrelid <> $1::text::regclass
		from pg_constraint where contype = 'f' and conparentid = 0 and convalidated
			and (conrelid = $1::text::regclass or confrelid = $1::text::regclass and conrelid not in (select name::regclass from unnest($2::text[]) name))`, t.Quoted(), moved)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[foreign])
}
