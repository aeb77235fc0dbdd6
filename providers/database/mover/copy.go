package mover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Copy copies the ranges that are not done.
func (m *Mover) Copy(ctx context.Context) (Progress, error) {
	if err := m.count(ctx); err != nil {
		return Progress{}, err
	}
	m.limit = nil
	if m.Rate > 0 {
		m.limit = rate.NewLimiter(rate.Limit(m.Rate), int(min(m.Rate, 1<<20)))
	}
	err := m.each(ctx, m.table)
	return m.counted.progress(""), err
}

// each does something for every table, some at a time.
func (m *Mover) each(ctx context.Context, do func(ctx context.Context, source, target *pgx.Conn, t *catalog.Table) error) error {
	group, ctx := errgroup.WithContext(ctx)
	todo := make(chan *catalog.Table)
	group.Go(func() error {
		defer close(todo)
		for _, t := range m.Tables {
			select {
			case todo <- t:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	parallel := m.Parallel
	if parallel <= 0 {
		parallel = 2
	}
	for range parallel {
		group.Go(func() error { return m.worker(ctx, todo, do) })
	}
	return group.Wait()
}

// worker does it for one table after the other.
func (m *Mover) worker(ctx context.Context, todo <-chan *catalog.Table, do func(ctx context.Context, source, target *pgx.Conn, t *catalog.Table) error) error {
	var source, target *pgx.Conn
	defer func() { pg.Close(source); pg.Close(target) }()
	for t := range todo {
		if source == nil {
			var err error
			if source, err = m.source(ctx); err != nil {
				return err
			}
			if target, err = m.target(ctx); err != nil {
				return err
			}
		}
		if err := do(ctx, source, target, t); err != nil {
			return fmt.Errorf("table %s: %w", t, err)
		}
	}
	return nil
}

func (m *Mover) table(ctx context.Context, source, target *pgx.Conn, t *catalog.Table) error {
	open, err := spans(ctx, target, t, `done_at is null`)
	if err == nil {
		open, err = m.cutOpen(ctx, source, t, open, func(parts []span) error { return m.replace(ctx, target, t, parts) })
	}
	if err != nil {
		return err
	}
	for _, s := range open {
		err := m.oneRange(ctx, source, target, t, s)
		if pg.State(err) == pg.UniqueViolation {
			// A row has moved between ranges while they were copied: the range is left to the comparison, which reads all of the table in one snapshot.
			err = m.fenced(ctx, target, func(tx pgx.Tx) error { return done(ctx, tx, t, s, 0, 0) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// spans reads ranges of a table that the target has.
func spans(ctx context.Context, conn *pgx.Conn, t *catalog.Table, which string) ([]span, error) {
	rows, err := conn.Query(ctx, `select n, low, high, by_bytes from instar.range join instar.moved using (table_name) where table_name = $1 and `+which+` order by n`, t.String())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s span, err error) {
		return s, row.Scan(&s.n, &s.low, &s.high, &s.bytes)
	})
}

// oneRange copies a range and marks it as done, in one transaction of the target.
func (m *Mover) oneRange(ctx context.Context, source, target *pgx.Conn, t *catalog.Table, s span) error {
	var rows, bytes int64
	err := m.fenced(ctx, target, func(tx pgx.Tx) (err error) {
		if rows, bytes, err = m.pour(ctx, source, target, t, s); err != nil {
			return err
		}
		return done(ctx, tx, t, s, rows, bytes)
	})
	if err != nil {
		return err
	}
	p := m.counted.add(t.String(), rows, bytes)
	if m.Told != nil {
		m.Told(p)
	}
	return nil
}

func done(ctx context.Context, tx pgx.Tx, t *catalog.Table, s span, rows, bytes int64) error {
	tag, err := tx.Exec(ctx, `update instar.range set rows = $3, bytes = $4, done_at = clock_timestamp() where table_name = $1 and n = $2 and done_at is null`, t.String(), s.n, rows, bytes)
	if err == nil && tag.RowsAffected() != 1 {
		return fmt.Errorf("range %d was copied by somebody else", s.n)
	}
	return err
}

// pour copies the rows of a range from the source, in whatever transaction it is, to the target.
func (m *Mover) pour(ctx context.Context, source, target *pgx.Conn, t *catalog.Table, s span) (rows, bytes int64, err error) {
	return m.carry(ctx, source, target, t, t.Where(m.Enterprise)+" and "+within(t, s))
}

// carry copies the rows of a table for which a condition holds.
func (m *Mover) carry(ctx context.Context, source, target *pgx.Conn, t *catalog.Table, where string) (rows, bytes int64, err error) {
	columns := t.Copied()
	from := make([]string, len(columns))
	for i, c := range columns {
		from[i] = catalog.Alias + "." + c
	}
	out := fmt.Sprintf(`copy (select %s from %s %s where %s) to stdout (format %s)`, strings.Join(from, ", "), t.Quoted(), catalog.Alias, where, t.Format())
	in := fmt.Sprintf(`copy %s (%s) from stdin (format %s)`, t.Quoted(), strings.Join(columns, ", "), t.Format())

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		_, err := source.PgConn().CopyTo(ctx, w, out)
		if err != nil {
			err = fmt.Errorf("where they come from: %w", err)
		}
		_ = w.CloseWithError(err) // never fails; nil is the end
		read <- err
	}()
	flow := &flow{ctx: ctx, from: r, limit: m.limit}
	tag, err := target.PgConn().CopyFrom(ctx, flow, in)
	_ = r.CloseWithError(io.ErrClosedPipe) // never fails: the source ends when the target has
	if err != nil {
		cancel()
	}
	if outErr := <-read; outErr != nil && (err == nil || !errors.Is(outErr, io.ErrClosedPipe)) {
		err = outErr
	}
	return tag.RowsAffected(), flow.bytes.Load(), err
}

// flow lets bytes through at the rate that is allowed.
type flow struct {
	ctx   context.Context
	from  io.Reader
	limit *rate.Limiter
	bytes atomic.Int64 // after an error, pgx may still be reading
}

func (f *flow) Read(p []byte) (int, error) {
	if f.limit != nil {
		p = p[:min(len(p), f.limit.Burst())]
	}
	n, err := f.from.Read(p)
	f.bytes.Add(int64(n))
	if f.limit != nil && n > 0 {
		if wait := f.limit.WaitN(f.ctx, n); wait != nil {
			return n, wait
		}
	}
	return n, err
}

// count finds how far the copy is.
func (m *Mover) count(ctx context.Context) error {
	conn, err := m.target(ctx)
	if err != nil {
		return err
	}
	defer pg.Close(conn)
	c := &counter{}
	err = conn.QueryRow(ctx, `
		select (select coalesce(sum(rows), 0)::bigint from instar.moved where session = $1),
			coalesce(sum(r.rows), 0)::bigint, coalesce(sum(r.bytes), 0)::bigint from instar.range r join instar.moved m using (table_name) where m.session = $1`, m.Session).
		Scan(&c.total, &c.rows, &c.bytes)
	if err != nil {
		return fmt.Errorf("target: cannot read how far the copy is: %w", err)
	}
	c.began, c.base = time.Now(), c.rows
	m.counted = c
	return nil
}
