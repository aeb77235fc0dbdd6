package mover

import (
	"context"
	"fmt"
	"math/big"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// The types of a [Discrepancy].
const (
	RowCountMismatch = "row_count_mismatch"
	ChecksumMismatch = "checksum_mismatch"
)

// Discrepancy is a table whose rows are not the same on both sides.
type Discrepancy struct {
	Table    string `json:"table"`
	Type     string `json:"type"`
	Source   Digest `json:"source"`
	Target   Digest `json:"target"`
	Ranges   []int  `json:"ranges"`   // that differ, by their numbers
	Repaired bool   `json:"repaired"` // they were copied again, and are the same now
}

// Digest stands for the rows of a table or of a range.
type Digest struct {
	Rows int64  `json:"rows"`
	Hash string `json:"hash"`
}

// Verified is the outcome of a comparison.
type Verified struct {
	Tables        int           `json:"tables"`
	Rows          int64         `json:"rows"`
	Discrepancies []Discrepancy `json:"discrepancies,omitempty"`
}

// Open are the discrepancies that remain.
func (v *Verified) Open() []Discrepancy {
	var list []Discrepancy
	for _, d := range v.Discrepancies {
		if !d.Repaired {
			list = append(list, d)
		}
	}
	return list
}

// Verify compares every table. Without a fence it reads the source in one snapshot: with repair, it copies ranges that differ again, in that snapshot, and compares once more. Behind a fence
// it holds none for longer than a range takes, or a table that is copied whole.
func (m *Mover) Verify(ctx context.Context, repair bool) (v Verified, err error) {
	err = m.both(ctx, func(source, target *pgx.Conn) error {
		tables := func(list ...*catalog.Table) func() error {
			return func() error { return m.verify(ctx, source, target, list, repair, &v) }
		}
		if !m.Fenced {
			return snapshot(ctx, source, tables(m.Tables...))
		}
		for _, t := range m.Tables {
			do := tables(t)
			if t.Kind == catalog.Reference { // which others write
				do = func() error { return snapshot(ctx, source, tables(t)) }
			}
			if err := do(); err != nil {
				return err
			}
		}
		return nil
	})
	return v, err
}

// snapshot has all that is read from the source meanwhile be of one time. As long as it lasts, the source cannot clean up what anybody has deleted.
func snapshot(ctx context.Context, source *pgx.Conn, do func() error) error {
	return pgx.BeginTxFunc(ctx, source, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(pgx.Tx) error { return do() })
}

func (m *Mover) verify(ctx context.Context, source, target *pgx.Conn, tables []*catalog.Table, repair bool, v *Verified) error {
	for _, t := range tables {
		d, rows, err := m.compare(ctx, source, target, t, repair)
		if err != nil {
			return fmt.Errorf("table %s: %w", t, err)
		}
		v.Tables, v.Rows = v.Tables+1, v.Rows+rows
		if d != nil {
			v.Discrepancies = append(v.Discrepancies, *d)
		}
	}
	return nil
}

func (m *Mover) compare(ctx context.Context, source, target *pgx.Conn, t *catalog.Table, repair bool) (*Discrepancy, int64, error) {
	f, err := m.differing(ctx, source, target, t)
	if err != nil {
		return nil, 0, err
	}
	if len(f.spans) == 0 {
		return nil, f.source.Rows, m.verified(ctx, target, t)
	}
	d := &Discrepancy{Table: t.String(), Type: ChecksumMismatch, Source: f.source, Target: f.target}
	for _, s := range f.spans {
		d.Ranges = append(d.Ranges, s.n)
	}
	if f.source.Rows != f.target.Rows {
		d.Type = RowCountMismatch
	}
	if !repair {
		return d, f.source.Rows, nil
	}
	if err := m.again(ctx, source, target, t, f.spans); err != nil {
		return nil, 0, err
	}
	left, err := m.differing(ctx, source, target, t)
	if err != nil {
		return nil, 0, err
	}
	if d.Repaired = len(left.spans) == 0; d.Repaired {
		return d, f.source.Rows, m.verified(ctx, target, t)
	}
	return d, f.source.Rows, nil
}

// difference is what a comparison of one table has found.
type difference struct {
	source, target Digest // of all its rows
	spans          []span // that are not the same
}

// differing compares a table range by range. One whose key has another order than its index has would be read whole for each range, so it is compared whole first.
func (m *Mover) differing(ctx context.Context, source, target *pgx.Conn, t *catalog.Table) (f difference, err error) {
	known, err := spans(ctx, target, t, `true`)
	if err != nil {
		return f, err
	}
	bytes, err := byBytes(ctx, source, target, t)
	if err != nil {
		return f, err
	}
	if len(known) == 0 { // it came after the move
		known = []span{{bytes: bytes}}
	}
	stale := bytes && !known[0].bytes
	if stale || reordered(t, known[0]) {
		if f, err = m.ranges(ctx, source, target, t, []span{{}}); err != nil || len(f.spans) == 0 {
			return f, err
		}
	}
	if stale {
		return f, pg.Refuse("the databases do not order the key of %s alike any more, or not as its index was built: REINDEX it, or undo the move and request it again", t)
	}
	if known, err = m.cutOpen(ctx, source, t, known, nil); err != nil {
		return f, err
	}
	return m.ranges(ctx, source, target, t, known)
}

func (m *Mover) ranges(ctx context.Context, source, target *pgx.Conn, t *catalog.Table, list []span) (f difference, err error) {
	var sums [2]big.Int
	for _, s := range list {
		a, b, err := m.digests(ctx, source, target, t, s)
		if err != nil {
			return f, err
		}
		if a != b {
			f.spans = append(f.spans, s)
		}
		f.source.Rows, f.target.Rows = f.source.Rows+a.Rows, f.target.Rows+b.Rows
		for i, hash := range []string{a.Hash, b.Hash} {
			n, ok := new(big.Int).SetString(hash, 10)
			if !ok {
				return f, fmt.Errorf("a sum of hashes is no number: %q", hash)
			}
			sums[i].Add(&sums[i], n)
		}
	}
	f.source.Hash, f.target.Hash = sums[0].String(), sums[1].String()
	return f, nil
}

// again replaces ranges of one table in one transaction, all deleted before the first is copied: a row that has moved from one to another
// is never there twice.
func (m *Mover) again(ctx context.Context, source, target *pgx.Conn, t *catalog.Table, differ []span) error {
	return m.fenced(ctx, target, func(tx pgx.Tx) error {
		for _, s := range differ {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`delete from %s %s where %s`, t.Quoted(), catalog.Alias, within(t, s))); err != nil {
				return fmt.Errorf("cannot empty range %d: %w", s.n, err)
			}
		}
		for _, s := range differ {
			rows, bytes, err := m.pour(ctx, source, target, t, s)
			if err != nil {
				return fmt.Errorf("cannot copy range %d again: %w", s.n, err)
			}
			if _, err := tx.Exec(ctx, `update instar.range set rows = $3, bytes = $4, done_at = clock_timestamp() where table_name = $1 and n = $2`, t.String(), s.n, rows, bytes); err != nil {
				return err
			}
		}
		return nil
	})
}

// digests reads both sides at the same time.
func (m *Mover) digests(ctx context.Context, source, target *pgx.Conn, t *catalog.Table, s span) (a, b Digest, err error) {
	far := make(chan error, 1)
	go func() {
		var err error
		b, err = m.digest(ctx, target, t, "true", s)
		far <- err
	}()
	a, err = m.digest(ctx, source, t, t.Where(m.Enterprise), s)
	if farErr := <-far; farErr != nil && err == nil {
		err = fmt.Errorf("target: %w", farErr)
	}
	return a, b, err
}

// digest is the count and the sum of the hashes: a sum tells a row that is there twice, and does not depend on the order.
func (m *Mover) digest(ctx context.Context, conn *pgx.Conn, t *catalog.Table, where string, s span) (d Digest, err error) {
	err = conn.QueryRow(ctx, fmt.Sprintf(`select count(*), coalesce(sum(%s::numeric), 0)::text from %s %s where %s and %s`,
		t.Hash(), t.Quoted(), catalog.Alias, where, within(t, s))).Scan(&d.Rows, &d.Hash)
	if err != nil {
		return d, fmt.Errorf("cannot compare rows: %w", err)
	}
	return d, nil
}

func (m *Mover) verified(ctx context.Context, target *pgx.Conn, t *catalog.Table) error {
	return m.fenced(ctx, target, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update instar.moved set verified_at = clock_timestamp() where table_name = $1`, t.String())
		return err
	})
}

// Sequences sets the sequences of the tables in the target to where those of the source are, never back.
func (m *Mover) Sequences(ctx context.Context) (set int, err error) {
	err = m.both(ctx, func(source, target *pgx.Conn) error {
		seen := map[string]bool{}
		for _, t := range m.Tables {
			for _, name := range t.Sequences {
				if seen[name] {
					continue
				}
				seen[name] = true
				if err := m.sequence(ctx, source, target, name); err != nil {
					return fmt.Errorf("sequence %s: %w", strings.ReplaceAll(name, `"`, ""), err)
				}
				set++
			}
		}
		return nil
	})
	return set, err
}

func (m *Mover) sequence(ctx context.Context, source, target *pgx.Conn, name string) error {
	var at int64
	var called bool
	if err := source.QueryRow(ctx, `select last_value, is_called from `+name).Scan(&at, &called); err != nil {
		return fmt.Errorf("cannot read it: %w", err)
	}
	return m.fenced(ctx, target, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf(`select setval(%s::regclass, $1, $2) from %s s, pg_sequence q where q.seqrelid = %[1]s::regclass and
			case when q.seqincrement > 0 then (s.last_value, s.is_called) < ($1, $2) else (-s.last_value, s.is_called) < (-$1, $2) end`, pg.Literal(name), name), at, called)
		return err
	})
}
