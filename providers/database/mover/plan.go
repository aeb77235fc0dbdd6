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

// span is a range of a table's key: above low, up to high. Nil is without an end.
type span struct {
	n         int
	low, high []string
	bytes     bool // in the order of the bytes of texts, see byBytes
}

// Prepare cuts the tables into ranges, where that was not done yet by this session. Rows that the target has before, such as those that
// migrations insert, are deleted: the tenant's are all that it will have.
func (m *Mover) Prepare(ctx context.Context) error { return m.each(ctx, m.prepare) }

func (m *Mover) prepare(ctx context.Context, source, target *pgx.Conn, t *catalog.Table) error {
	var there bool
	if err := target.QueryRow(ctx, `select exists (select from instar.moved where table_name = $1 and session = $2)`, t.String(), m.Session).Scan(&there); err != nil || there {
		return err
	}
	bytes, err := byBytes(ctx, source, target, t)
	if err != nil {
		return err
	}
	rows, spans, err := m.cut(ctx, source, t, span{bytes: bytes})
	if err != nil {
		return err
	}
	return m.store(ctx, target, t, rows, spans)
}

// cut counts the rows of an open span and finds every n-th key, in one pass over them. The last of the spans that it is cut into is open again.
func (m *Mover) cut(ctx context.Context, conn *pgx.Conn, t *catalog.Table, all span) (rows int64, spans []span, err error) {
	where := t.Where(m.Enterprise) + " and " + within(t, all)
	var width float64
	err = conn.QueryRow(ctx, fmt.Sprintf(`select coalesce(avg(octet_length(%[1]s::text)), 0)::float8 from (select %[1]s.* from %[2]s %[1]s where %[3]s limit 200) %[1]s`, catalog.Alias, t.Quoted(), where)).Scan(&width)
	if err != nil {
		return 0, nil, fmt.Errorf("cannot read it: %w", err)
	}
	keys := keyColumns(t, all.bytes)
	texts := make([]string, len(keys))
	for i, c := range t.Key {
		texts[i] = "q." + pg.Ident(c.Name) + "::text"
	}
	names := make([]string, len(t.Key))
	for i, c := range t.Key {
		names[i] = catalog.Alias + "." + pg.Ident(c.Name)
	}
	found, err := conn.Query(ctx, fmt.Sprintf(`
		select q.rn, array[%s] from (select %s, row_number() over w as rn, lead(false, 1, true) over w as last from %s %s where %s window w as (order by %s)) q
		where q.rn %% %d = 0 or q.last order by q.rn`, // count(*) over () would keep all rows before it gave the first
		strings.Join(texts, ", "), strings.Join(names, ", "), t.Quoted(), catalog.Alias, where, strings.Join(keys, ", "), m.perRange(width)))
	if err != nil {
		return 0, nil, fmt.Errorf("cannot read its keys: %w", err)
	}
	low, at := all.low, []string(nil)
	_, err = pgx.ForEachRow(found, []any{&rows, &at}, func() error {
		high := append([]string(nil), at...)
		spans = append(spans, span{n: all.n + len(spans), low: low, high: high, bytes: all.bytes})
		low = high
		return nil
	})
	if err != nil {
		return 0, nil, fmt.Errorf("cannot read its keys: %w", err)
	}
	if len(spans) == 0 {
		return 0, []span{all}, nil
	}
	spans[len(spans)-1].high = nil // what comes after the last key of now belongs to the last range
	return rows, spans, nil
}

// cutOpen cuts the last of the spans that a table has anew where it is open: what was written since it was cut, as in a pause of days, would be one large transaction. Where stored, the
// target has the new ones.
func (m *Mover) cutOpen(ctx context.Context, source *pgx.Conn, t *catalog.Table, spans []span, store func([]span) error) ([]span, error) {
	last := len(spans) - 1
	if last < 0 || spans[last].high != nil {
		return spans, nil
	}
	_, parts, err := m.cut(ctx, source, t, spans[last])
	if err == nil && store != nil && len(parts) > 1 {
		err = store(parts)
	}
	if err != nil {
		return nil, err
	}
	return append(spans[:last:last], parts...), nil
}

// replace has the target know the parts of a span that is not done instead of it.
func (m *Mover) replace(ctx context.Context, target *pgx.Conn, t *catalog.Table, parts []span) error {
	return m.fenced(ctx, target, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `delete from instar.range where table_name = $1 and n = $2 and done_at is null`, t.String(), parts[0].n); err != nil {
			return err
		}
		return insert(ctx, tx, t, parts)
	})
}

func insert(ctx context.Context, tx pgx.Tx, t *catalog.Table, spans []span) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"instar", "range"}, []string{"table_name", "n", "low", "high"}, pgx.CopyFromSlice(len(spans), func(i int) ([]any, error) {
		return []any{t.String(), spans[i].n, spans[i].low, spans[i].high}, nil
	}))
	return err
}

// perRange is how many rows of a width a range has.
func (m *Mover) perRange(width float64) int64 {
	most, bytes := int64(m.RangeRows), m.RangeBytes
	if most <= 0 {
		most = 10000
	}
	if bytes <= 0 {
		bytes = 16 << 20
	}
	return max(1, min(most, int64(float64(bytes)/max(width, 1))))
}

// keyColumns are the columns of the key as they are ordered.
func keyColumns(t *catalog.Table, bytes bool) []string {
	list := make([]string, len(t.Key))
	for i, c := range t.Key {
		list[i] = catalog.Alias + "." + pg.Ident(c.Name)
		if bytes && c.Collated {
			list[i] += ` collate "C"`
		}
	}
	return list
}

// collations says how a database orders the values of some columns, and whether that is how its indexes were built. What it says of two databases is the same only if they order them alike.
const collations = `
	select coalesce(bool_or(case c.collprovider when 'd' then to_jsonb(d) ->> 'datcollversion' is distinct from pg_database_collation_actual_version(d.oid)
			else c.collversion is distinct from pg_collation_actual_version(c.oid) end), false), coalesce(string_agg(concat_ws(' ', pg_encoding_to_char(d.encoding), case c.collprovider when 'd' then
			jsonb_build_array(to_jsonb(d) -> 'datlocprovider', d.datcollate, to_jsonb(d) -> 'daticulocale', to_jsonb(d) -> 'datlocale', to_jsonb(d) -> 'daticurules')::text || coalesce(pg_database_collation_actual_version(d.oid), '')
			else (to_jsonb(c) - '{oid,collname,collnamespace,collowner,collversion,collencoding}'::text[])::text || coalesce(pg_collation_actual_version(c.oid), '') end), ', ' order by k.n), '')
	from unnest($2::text[]) with ordinality k (name, n) join pg_attribute a on a.attrelid = $1::text::regclass and a.attname = k.name join pg_collation c on c.oid = a.attcollation
		join pg_database d on d.datname = current_database()`

// byBytes reports whether ranges of a table have to be in the order of the bytes of texts, which no index has: because the databases order them in different ways, or one of them another
// way than when its indexes were built (a system that was upgraded, or a standby on another one, without REINDEX), by which rows may not be found. Ranges that are in the order of the
// key are read by its index.
func byBytes(ctx context.Context, source, target *pgx.Conn, t *catalog.Table) (bool, error) {
	names := []string{}
	for _, c := range t.Key {
		if c.Collated {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return false, nil
	}
	var said [2]string
	stale := false
	for i, conn := range []*pgx.Conn{source, target} {
		err := conn.QueryRow(ctx, collations, t.Quoted(), names).Scan(&stale, &said[i])
		if pg.State(err) == pg.UnknownFunction { // a Postgres before 15 does not say it
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("cannot read how its key is ordered: %w", err)
		}
		if stale {
			return true, nil
		}
	}
	return said[0] != said[1], nil
}

// reordered reports whether no index of the key has the order of a span.
func reordered(t *catalog.Table, s span) bool {
	return s.bytes && slices.ContainsFunc(t.Key, func(c catalog.Column) bool { return c.Collated })
}

// within is the condition of a range.
func within(t *catalog.Table, s span) string {
	row := "(" + strings.Join(keyColumns(t, s.bytes), ", ") + ")"
	bound := func(values []string) string {
		list := make([]string, len(values))
		for i, v := range values {
			list[i] = pg.Literal(v) + "::" + t.Key[i].Type
		}
		return "(" + strings.Join(list, ", ") + ")"
	}
	cond := "true"
	if s.low != nil {
		cond = row + " > " + bound(s.low)
	}
	if s.high != nil {
		cond += " and " + row + " <= " + bound(s.high)
	}
	return cond
}

func (m *Mover) store(ctx context.Context, conn *pgx.Conn, t *catalog.Table, rows int64, spans []span) error {
	return m.fenced(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `delete from instar.moved where table_name = $1`, t.String()); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `delete from `+t.Quoted()); err != nil {
			return fmt.Errorf("cannot empty it in the target: %w", err)
		}
		if _, err := tx.Exec(ctx, `insert into instar.moved (table_name, session, rows, by_bytes) values ($1, $2, $3, $4)`, t.String(), m.Session, rows, spans[0].bytes); err != nil {
			return err
		}
		return insert(ctx, tx, t, spans)
	})
}

// Has counts the rows that the target has of some tables.
func (m *Mover) Has(ctx context.Context, tables []*catalog.Table) (rows int64, err error) {
	conn, err := m.target(ctx)
	if err != nil {
		return 0, err
	}
	defer pg.Close(conn)
	for _, t := range tables {
		var n int64
		if err := conn.QueryRow(ctx, `select count(*) from `+t.Quoted()).Scan(&n); err != nil {
			return 0, fmt.Errorf("target: cannot count the rows of %s: %w", t, err)
		}
		rows += n
	}
	return rows, nil
}

// Estimate counts the rows of the tables, and about how long a copy takes at that many rows per second.
func (m *Mover) Estimate(ctx context.Context) (rows map[string]int64, err error) {
	conn, err := m.source(ctx)
	if err != nil {
		return nil, err
	}
	defer pg.Close(conn)
	rows = map[string]int64{}
	for _, t := range m.Tables {
		var n int64
		if err := conn.QueryRow(ctx, fmt.Sprintf(`select count(*) from %s %s where %s`, t.Quoted(), catalog.Alias, t.Where(m.Enterprise))).Scan(&n); err != nil {
			return nil, fmt.Errorf("cannot count the rows of %s: %w", t, err)
		}
		rows[t.String()] = n
	}
	return rows, nil
}
