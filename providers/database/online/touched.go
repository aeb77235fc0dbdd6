package online

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// A second slot notes which rows were written, of tables whose filter would have subqueries, and of those that are copied whole, too, of all tenants there. Nobody has to compare
// a whole table under the fence for it: what was the same before, and is not noted since, is the same.

func (l *Link) notes() string { return l.Name() + "_keys" }

// tells is whether the log of a table has the key of a row that is deleted, which it has only where the replica identity has it: a primary key that may be checked late is none, and columns that are generated are not sent.
const tells = `not exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = any($2::text[]) and a.attgenerated <> '') and (c.relreplident = 'f' or $2::text[] <@ coalesce((select array_agg(a.attname::text) from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
	where i.indrelid = c.oid and i.indisvalid and i.indimmediate and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident end), '{}'))`

// ask asks something of a table, which is c; $2 are the names of its key.
func ask(ctx context.Context, conn *pgx.Conn, t *catalog.Table, what string) (is bool, err error) {
	err = conn.QueryRow(ctx, `select `+what+` from pg_class c where c.oid = $1::regclass`, t.Quoted(), names(t.Key)).Scan(&is)
	return is, err
}

func names(columns []catalog.Column) []string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.Name
	}
	return list
}

// noted are the tables whose log is read: those that have rows of tenants, of which the plan demands that it tells, and what is copied whole, if it tells, and the role may publish it.
func (l *Link) noted(ctx context.Context, conn *pgx.Conn) (list []*catalog.Table, err error) {
	for _, t := range l.Tables {
		may := t.Kind == catalog.Tenant || t.Kind == catalog.Child
		if t.Kind == catalog.Reference {
			if may, err = ask(ctx, conn, t, `c.relkind = 'r' and c.relpersistence = 'p' and pg_has_role(c.relowner, 'USAGE') and `+tells); err != nil {
				return nil, err
			}
		}
		if may {
			list = append(list, t)
		}
	}
	return list, nil
}

// Note begins to note which rows are written, unless that was done of all tables of which it can be, and returns those that are copied whole and of which it cannot be. What was noted is
// dropped in a hold, where it is not of these tables, or its log has gone.
func (l *Link) Note(ctx context.Context, hold Hold) (untold []*catalog.Table, err error) {
	err = l.on(ctx, l.Source, func(conn *pgx.Conn) error {
		list, err := l.noted(ctx, conn)
		if err != nil {
			return err
		}
		untold = slices.DeleteFunc(slices.Clone(l.Tables), func(t *catalog.Table) bool { return t.Kind != catalog.Reference || slices.Contains(list, t) })
		var published, slot, lost bool
		if err := conn.QueryRow(ctx, `select exists (select from pg_publication where pubname = $1), count(*) > 0, coalesce(bool_or(wal_status = 'lost'), false) from pg_replication_slots where slot_name = $1`, l.notes()).Scan(&published, &slot, &lost); err != nil {
			return err
		}
		of := make([]string, len(list))
		for i, t := range list {
			of[i] = t.Quoted()
		}
		var others bool // as by an earlier version: what open transactions have written of the others is not in the log of this slot
		if err := conn.QueryRow(ctx, `select count(*) <> cardinality($2::text[]) or count(*) filter (where not r.prrelid = any($2::text[]::regclass[])) > 0 from pg_publication_rel r join pg_publication p on p.oid = r.prpubid where p.pubname = $1`, l.notes(), of).Scan(&others); err != nil {
			return err
		}
		others = published && others
		if lost || others {
			if err := l.Unnote(ctx, hold); err != nil {
				return err
			}
			slot = false
		}
		if others {
			if _, err := conn.Exec(ctx, `drop publication if exists `+pg.Ident(l.notes())); err != nil {
				return err
			}
			published = false
		}
		return l.note(ctx, conn, list, published, slot)
	})
	return untold, err
}

// note makes the publication and the slot, where they are not there.
func (l *Link) note(ctx context.Context, conn *pgx.Conn, tables []*catalog.Table, published, slot bool) error {
	if !published {
		list := make([]string, len(tables))
		for i, t := range tables {
			list[i] = "table " + t.Quoted()
			if t.Kind == catalog.Tenant {
				list[i] += " where (" + t.WhereAs(pg.Ident(t.Name), l.Enterprise) + ")"
			}
		}
		if _, err := conn.Exec(ctx, fmt.Sprintf(`create publication %s for %s`, pg.Ident(l.notes()), strings.Join(list, ", "))); err != nil {
			return fmt.Errorf("cannot publish which rows are written: %w", err)
		}
	}
	if slot {
		return nil
	}
	if _, err := conn.Exec(ctx, `select pg_create_logical_replication_slot($1, 'pgoutput')`, l.notes()); err != nil {
		return fmt.Errorf("cannot make the slot that notes which rows are written: %w", err)
	}
	return nil
}

// Touch is one row that was written.
type Touch struct {
	Table *catalog.Table
	Key   []string
	Moved bool // it was inserted or deleted, or came to the tenant or left it: what hangs on it may be another's now
}

// ErrTruncated is that of [Link.Touched] where a table was truncated: which rows have gone is not told.
var ErrTruncated = pg.Later(0, "a table was truncated while its rows were being compared")

// Noted are rows that were written, by whole transactions.
type Noted struct {
	Rows  []Touch
	Until pglogrepl.LSN // of the log
	More  bool          // else it is all that was committed before the mark
}

// Touched are the rows that were written before a mark, of about so many changes at most. They are told again until [Link.Forget].
func (l *Link) Touched(ctx context.Context, before Mark, most int) (n Noted, err error) {
	err = l.on(ctx, l.Source, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `select data from pg_logical_slot_peek_binary_changes($1, $2::text::pg_lsn, $3, 'proto_version', '1', 'publication_names', $4)`,
			l.notes(), before.At.String(), most, l.notes())
		if err != nil {
			return err
		}
		r := &reader{of: map[uint32]*relation{}, tables: l.Tables}
		var data []byte
		tag, err := pgx.ForEachRow(rows, []any{&data}, func() error { return r.read(data) })
		n = Noted{Rows: r.list, Until: r.until, More: tag.RowsAffected() >= int64(most)}
		if !n.More { // what is not published was read, too
			n.Until = max(n.Until, before.At)
		}
		return err
	})
	if err != nil {
		return Noted{}, fmt.Errorf("cannot read which rows were written: %w", err)
	}
	return n, nil
}

// Forget forgets what was told until there. It is held: the slot has the same name for every attempt.
func (l *Link) Forget(ctx context.Context, until pglogrepl.LSN, hold Hold) error {
	return hold(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `select pg_replication_slot_advance($1, $2::text::pg_lsn)`, l.notes(), until.String())
		return err
	})
}

// relation is a table as the log describes it.
type relation struct {
	table *catalog.Table
	names []string
}

// reader collects the keys of the messages of pgoutput.
type reader struct {
	tables []*catalog.Table
	of     map[uint32]*relation
	list   []Touch
	until  pglogrepl.LSN
}

func (r *reader) read(data []byte) error {
	message, err := pglogrepl.Parse(data)
	if err != nil {
		return err
	}
	switch m := message.(type) {
	case *pglogrepl.RelationMessage:
		return r.relation(m)
	case *pglogrepl.InsertMessage:
		return r.touch(m.RelationID, true, m.Tuple)
	case *pglogrepl.DeleteMessage:
		return r.touch(m.RelationID, true, m.OldTuple)
	case *pglogrepl.UpdateMessage:
		return r.touch(m.RelationID, m.OldTuple != nil, m.OldTuple, m.NewTuple)
	case *pglogrepl.TruncateMessage:
		return ErrTruncated
	case *pglogrepl.CommitMessage:
		r.until = m.TransactionEndLSN
	}
	return nil
}

func (r *reader) relation(m *pglogrepl.RelationMessage) error {
	n := slices.IndexFunc(r.tables, func(t *catalog.Table) bool { return t.Schema == m.Namespace && t.Name == m.RelationName })
	if n < 0 {
		return pg.Refuse("the publication has the table %s.%s, which is not moved", m.Namespace, m.RelationName)
	}
	rel := &relation{table: r.tables[n]}
	for _, c := range m.Columns {
		rel.names = append(rel.names, c.Name)
	}
	r.of[m.RelationID] = rel
	return nil
}

func (r *reader) touch(id uint32, moved bool, tuples ...*pglogrepl.TupleData) error {
	rel := r.of[id]
	if rel == nil {
		return pg.Refuse("the log has a row of an unknown table")
	}
	for _, tuple := range tuples {
		if tuple == nil {
			continue
		}
		key := make([]string, len(rel.table.Key))
		for i, c := range rel.table.Key {
			n := slices.Index(rel.names, c.Name)
			if n < 0 || n >= len(tuple.Columns) || tuple.Columns[n].DataType != pglogrepl.TupleDataTypeText {
				return pg.Refuse("table %s: the log does not say which row was written: its replica identity lacks %s", rel.table, c.Name)
			}
			key[i] = string(tuple.Columns[n].Data)
		}
		r.list = append(r.list, Touch{Table: rel.table, Key: key, Moved: moved})
	}
	return nil
}
