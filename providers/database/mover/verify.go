package mover

import (
	"context"
	"fmt"
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
	Ranges   int    `json:"ranges"`   // that differ
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

// Verify compares every table in one snapshot of the source. With repair, it copies ranges that differ again, in that snapshot, and
// compares once more.
func (m *Mover) Verify(ctx context.Context, repair bool) (v Verified, err error) {
	err = m.both(ctx, func(source, target *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, source, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(pgx.Tx) error {
			for _, t := range m.Tables {
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
		})
	})
	return v, err
}

func (m *Mover) compare(ctx context.Context, source, target *pgx.Conn, t *catalog.Table, repair bool) (*Discrepancy, int64, error) {
	all := span{}
	a, b, err := m.digests(ctx, source, target, t, all)
	if err != nil {
		return nil, 0, err
	}
	if a == b {
		return nil, a.Rows, m.verified(ctx, target, t)
	}
	d := &Discrepancy{Table: t.String(), Type: ChecksumMismatch, Source: a, Target: b}
	if a.Rows != b.Rows {
		d.Type = RowCountMismatch
	}
	known, err := spans(ctx, target, t, `true`)
	if err == nil {
		known, err = m.cutOpen(ctx, source, t, known, nil)
	}
	if err != nil {
		return nil, 0, err
	}
	var differ []span
	for _, s := range known {
		x, y, err := m.digests(ctx, source, target, t, s)
		if err != nil {
			return nil, 0, err
		}
		if x != y {
			differ = append(differ, s)
		}
	}
	d.Ranges = len(differ)
	if !repair || len(differ) == 0 {
		return d, a.Rows, nil
	}
	if err := m.again(ctx, source, target, t, differ); err != nil {
		return nil, 0, err
	}
	if _, b, err = m.digests(ctx, source, target, t, all); err != nil {
		return nil, 0, err
	}
	if d.Repaired = a == b; d.Repaired {
		return d, a.Rows, m.verified(ctx, target, t)
	}
	return d, a.Rows, nil
}

// again replaces ranges of one table in one transaction, all deleted before the first is copied: a row that has moved from one to another
// is never there twice.
func (m *Mover) again(ctx context.Context, source, target *pgx.Conn, t *catalog.Table, differ []span) error {
	return m.fenced(ctx, target, func(tx pgx.Tx) error {
		for _, s := range differ {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`delete from %s %s where %s`, t.Quoted(), catalog.Alias, m.within(t, s))); err != nil {
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
		t.Hash(), t.Quoted(), catalog.Alias, where, m.within(t, s))).Scan(&d.Rows, &d.Hash)
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
