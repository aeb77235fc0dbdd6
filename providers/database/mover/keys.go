package mover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Keys are rows of one table, told by the values of its key as texts, in the order of [catalog.Table.Key].
type Keys struct {
	Table *catalog.Table
	list  [][]string
	seen  map[string]bool
}

// Add adds a row, once.
func (k *Keys) Add(key []string) {
	if k.seen == nil {
		k.seen = map[string]bool{}
	}
	if name := strings.Join(key, "\x00"); !k.seen[name] {
		k.seen[name] = true
		k.list = append(k.list, key)
	}
}

// Merge adds all rows of another.
func (k *Keys) Merge(other *Keys) {
	for _, key := range other.list {
		k.Add(key)
	}
}

// Len is how many there are.
func (k *Keys) Len() int { return len(k.list) }

// batches are conditions that together hold for these rows and no others.
func (k *Keys) batches() []string {
	columns := make([]string, len(k.Table.Key))
	for i, c := range k.Table.Key {
		columns[i] = c.Name
	}
	return k.where(columns, columns)
}

// hanging are conditions that hold for the rows of a child that refer to these.
func (k *Keys) hanging(t *catalog.Table) []string { return k.where(t.Parent.From, t.Parent.On) }

// where says that columns of some table have the values of columns of the key.
func (k *Keys) where(columns, key []string) (where []string) {
	for part := range slices.Chunk(k.list, 5000) {
		left, types, names, values := make([]string, len(key)), make([]string, len(key)), make([]string, len(key)), make([]string, len(key))
		for i, name := range key {
			at := slices.IndexFunc(k.Table.Key, func(c catalog.Column) bool { return c.Name == name })
			texts := make([]string, len(part))
			for n, row := range part {
				texts[n] = pg.Literal(row[at])
			}
			left[i] = catalog.Alias + "." + pg.Ident(columns[i])
			names[i], types[i] = fmt.Sprint("k", i), fmt.Sprintf("k%d::%s", i, k.Table.Key[at].Type)
			values[i] = "array[" + strings.Join(texts, ",") + "]::text[]"
		}
		where = append(where, fmt.Sprintf("(%s) in (select %s from unnest(%s) k(%s))", strings.Join(left, ", "), strings.Join(types, ", "), strings.Join(values, ", "), strings.Join(names, ", ")))
	}
	return where
}

// hashes reads the hash of each row, by its key.
func (m *Mover) hashes(ctx context.Context, conn *pgx.Conn, t *catalog.Table, where string) (map[string]string, error) {
	texts := make([]string, len(t.Key))
	for i, c := range t.Key {
		texts[i] = catalog.Alias + "." + pg.Ident(c.Name) + "::text"
	}
	rows, err := conn.Query(ctx, fmt.Sprintf(`select array[%s], %s::text from %s %s where %s`, strings.Join(texts, ", "), t.Hash(), t.Quoted(), catalog.Alias, where))
	if err != nil {
		return nil, fmt.Errorf("cannot compare rows: %w", err)
	}
	all := map[string]string{}
	var key []string
	var hash string
	_, err = pgx.ForEachRow(rows, []any{&key, &hash}, func() error {
		all[strings.Join(key, "\x00")] = hash
		return nil
	})
	return all, err
}

// differ adds the rows within a condition that are not the same on both sides.
func (m *Mover) differ(ctx context.Context, source, target *pgx.Conn, t *catalog.Table, within string, to *Keys) error {
	a, err := m.hashes(ctx, source, t, t.Where(m.Enterprise)+" and "+within)
	if err != nil {
		return err
	}
	b, err := m.hashes(ctx, target, t, within)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	for key, hash := range a {
		if other, there := b[key]; other != hash && (there || !m.Apart) {
			to.Add(strings.Split(key, "\x00"))
		}
	}
	for key := range b {
		if _, there := a[key]; !there {
			to.Add(strings.Split(key, "\x00"))
		}
	}
	return nil
}

// both opens a connection to each side.
func (m *Mover) both(ctx context.Context, do func(source, target *pgx.Conn) error) error {
	source, err := m.source(ctx)
	if err != nil {
		return err
	}
	defer pg.Close(source)
	target, err := m.target(ctx)
	if err != nil {
		return err
	}
	defer pg.Close(target)
	return do(source, target)
}

// Differences are the rows that are not the same on both sides, each side read at its own time: first the ranges of the tables are compared, then the
// rows of those that differ. Tables that are the same are not in it.
func (m *Mover) Differences(ctx context.Context) (list []*Keys, rows int64, err error) {
	err = m.both(ctx, func(source, target *pgx.Conn) error {
		for _, t := range m.Tables {
			k, n, err := m.differences(ctx, source, target, t)
			if err != nil {
				return fmt.Errorf("table %s: %w", t, err)
			}
			rows += n
			if k.Len() > 0 {
				list = append(list, k)
			}
		}
		return nil
	})
	return list, rows, err
}

func (m *Mover) differences(ctx context.Context, source, target *pgx.Conn, t *catalog.Table) (*Keys, int64, error) {
	k := &Keys{Table: t}
	f, err := m.differing(ctx, source, target, t)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range f.spans {
		if err := m.differ(ctx, source, target, t, within(t, s), k); err != nil {
			return nil, 0, err
		}
	}
	return k, f.source.Rows, nil
}

// Below are the rows of children that hang on some rows and are not the same on both sides.
func (m *Mover) Below(ctx context.Context, k *Keys, of []*catalog.Table) (list []*Keys, err error) {
	below := slices.DeleteFunc(slices.Clone(of), func(t *catalog.Table) bool { return t.Parent == nil || t.Parent.To != k.Table })
	if len(below) == 0 || k.Len() == 0 {
		return nil, nil
	}
	err = m.both(ctx, func(source, target *pgx.Conn) error {
		for _, t := range below {
			found := &Keys{Table: t}
			for _, within := range k.hanging(t) {
				if err := m.differ(ctx, source, target, t, within, found); err != nil {
					return fmt.Errorf("table %s: %w", t, err)
				}
			}
			if found.Len() > 0 {
				list = append(list, found)
			}
		}
		return nil
	})
	return list, err
}

// Still are those of some rows that are not the same on both sides now.
func (m *Mover) Still(ctx context.Context, of []*Keys) (list []*Keys, err error) {
	if len(of) == 0 {
		return nil, nil
	}
	err = m.both(ctx, func(source, target *pgx.Conn) error {
		list, err = m.still(ctx, source, target, of)
		return err
	})
	return list, err
}

func (m *Mover) still(ctx context.Context, source, target *pgx.Conn, of []*Keys) (list []*Keys, err error) {
	for _, k := range of {
		left := &Keys{Table: k.Table}
		for _, within := range k.batches() {
			if err := m.differ(ctx, source, target, k.Table, within, left); err != nil {
				return nil, fmt.Errorf("table %s: %w", k.Table, err)
			}
		}
		if left.Len() > 0 {
			list = append(list, left)
		}
	}
	return list, nil
}

// Again copies rows as the source has them now, in one transaction of the target: what it does not have is deleted.
func (m *Mover) Again(ctx context.Context, of []*Keys) error {
	if len(of) == 0 {
		return nil
	}
	return m.both(ctx, func(source, target *pgx.Conn) error { return m.renew(ctx, source, target, of) })
}

func (m *Mover) renew(ctx context.Context, source, target *pgx.Conn, of []*Keys) error {
	return m.fenced(ctx, target, func(tx pgx.Tx) error {
		for _, k := range slices.Backward(of) {
			for _, within := range k.batches() {
				if _, err := tx.Exec(ctx, fmt.Sprintf(`delete from %s %s where %s`, k.Table.Quoted(), catalog.Alias, within)); err != nil {
					return fmt.Errorf("table %s: cannot replace rows: %w", k.Table, err)
				}
			}
		}
		for _, k := range of {
			for _, within := range k.batches() {
				if _, _, err := m.carry(ctx, source, target, k.Table, k.Table.Where(m.Enterprise)+" and "+within); err != nil {
					return fmt.Errorf("table %s: cannot copy rows: %w", k.Table, err)
				}
			}
		}
		return nil
	})
}

// Settle copies those of some rows again that are not the same on both sides, and returns of how many tables they are, and which differ all the same. It reads the source as it is at one moment: what is copied whole is written on by others.
func (m *Mover) Settle(ctx context.Context, of []*Keys) (repaired int, left []*Keys, err error) {
	if len(of) == 0 {
		return 0, nil, nil
	}
	err = m.both(ctx, func(source, target *pgx.Conn) error {
		return snapshot(ctx, source, func() error {
			differ, err := m.still(ctx, source, target, of)
			if err != nil || len(differ) == 0 {
				return err
			}
			if err := m.renew(ctx, source, target, differ); err != nil {
				return err
			}
			repaired = len(differ)
			left, err = m.still(ctx, source, target, differ)
			return err
		})
	})
	return repaired, left, err
}

// Back copies rows from the target into the source, in one transaction of the source, which begins with take: parents come before their
// children, and go after them. No trigger of the source fires but those that always do. A key that another tenant has taken, or where nothing is replaced any other row, is refused. Its sequences go ahead first: whoever repeats it after the commit finds the rows there, and
// does not look at sequences again. [ErrUnknown] says that the commit has no answer; with any other error nothing was changed.
func (m *Mover) Back(ctx context.Context, of []*Keys, take func(pgx.Tx) error) error {
	replica := *m
	replica.Source.Replica = true
	return replica.both(ctx, func(source, target *pgx.Conn) error {
		if err := m.ahead(ctx, source, target, of); err != nil {
			return err
		}
		tx, err := source.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // of what is not committed
		if err := take(tx); err != nil {
			return err
		}
		if err := m.back(ctx, tx, source, target, of); err != nil {
			return err
		}
		return committed(tx.Commit(ctx))
	})
}

// ErrUnknown says that a commit has no answer.
var ErrUnknown = errors.New("it is not known whether it was committed")

// committed is the error of a commit: where the server has answered, other than that it ends, nothing was.
func committed(err error) error {
	state := pg.State(err)
	if err == nil || errors.Is(err, pgx.ErrTxCommitRollback) || state != "" && !strings.HasPrefix(state, "57") && !strings.HasPrefix(state, "08") {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

func (m *Mover) back(ctx context.Context, tx pgx.Tx, source, target *pgx.Conn, of []*Keys) error {
	before := map[*Keys]orphans{}
	for _, k := range of {
		var err error
		if before[k], err = m.orphans(ctx, tx, k); err != nil {
			return err
		}
	}
	for _, k := range slices.Backward(of) {
		if m.Apart {
			break
		}
		for _, within := range k.batches() {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`delete from %s %s where %s and %s`, k.Table.Quoted(), catalog.Alias, k.Table.Where(m.Enterprise), within)); err != nil {
				return fmt.Errorf("table %s: cannot replace rows: %w", k.Table, err)
			}
		}
	}
	for _, k := range of {
		for _, within := range k.batches() {
			_, _, err := m.carry(ctx, target, source, k.Table, within)
			if pg.State(err) == pg.UniqueViolation {
				return pg.Refuse("table %s: rows that the tenant has written have keys that other rows have in the shared database", k.Table)
			}
			if err != nil {
				return fmt.Errorf("table %s: cannot copy rows back: %w", k.Table, err)
			}
		}
	}
	for _, k := range of {
		left := &Keys{Table: k.Table}
		for _, within := range k.batches() {
			if err := m.differ(ctx, source, target, k.Table, within, left); err != nil {
				return err
			}
		}
		if left.Len() > 0 {
			return pg.Refuse("table %s: %d rows are not the same after they were copied back: a trigger of the shared database may change rows", k.Table, left.Len())
		}
		if err := m.referring(ctx, tx, k, before[k]); err != nil {
			return err
		}
	}
	return nil
}

// ahead sets sequences of the source beyond those of the target. Others take values at the same time, so it leaves a gap that they do not
// cross between the question and the answer: of a sequence that is near its end, half of what is left.
func (m *Mover) ahead(ctx context.Context, source, target *pgx.Conn, of []*Keys) error {
	for _, k := range of {
		for _, name := range k.Table.Sequences {
			var at int64
			if err := target.QueryRow(ctx, `select last_value from `+name).Scan(&at); err != nil {
				return fmt.Errorf("table %s: cannot read a sequence: %w", k.Table, err)
			}
			_, err := source.Exec(ctx, fmt.Sprintf(`select setval(%s::regclass, least(greatest($1::bigint + case when q.seqincrement > 0
					then least(1000 * q.seqincrement::numeric, div(q.seqmax::numeric - $1, 2)) else greatest(1000 * q.seqincrement::numeric, div(q.seqmin::numeric - $1, 2)) end, q.seqmin), q.seqmax)::bigint)
				from %s s, pg_sequence q where q.seqrelid = %[1]s::regclass and case when q.seqincrement > 0 then s.last_value <= $1 else s.last_value >= $1 end`, pg.Literal(name), name), at)
			if err != nil {
				return fmt.Errorf("table %s: cannot set a sequence: %w", k.Table, err)
			}
		}
	}
	return nil
}
