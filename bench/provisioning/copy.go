package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/mover"
	"github.com/bcc94042/instar/providers/database/pg"
)

const (
	who     = "t0"
	columns = "id, enterprise_id, at, total, note"
)

// way copies the tenant's rows of tables, and returns the CPU time of processes that it started beside.
type way struct {
	name string
	run  func(ctx context.Context, source, target pg.Address, tables []*catalog.Table) (time.Duration, error)
}

type round struct {
	perSecond, here, postgres float64 // rows, and microseconds of CPU per row
	arrived                   int64
}

// bare is that to which others are compared.
const bare = "one bare binary COPY stream"

func ways() []way {
	return []way{
		{bare, bareCopy},
		{"mover, 1 table at a time", moved(1)},
		{"mover, 2 tables at a time", moved(2)},
		{"psql COPY (select …) | psql COPY", piped},
		{"LIMIT/OFFSET, INSERT of 1,000", paged},
	}
}

// copies measures the ways in turns, each into a new database.
func (b *bench) copies(ctx context.Context) error {
	source, err := b.shared(ctx, b.rows, 0, 2)
	if err != nil {
		return err
	}
	conn, err := pg.Connect(ctx, source)
	if err != nil {
		return err
	}
	report, err := catalog.Inspect(ctx, conn, catalog.Catalogue{})
	pg.Close(conn)
	if err != nil {
		return err
	}
	all, found := ways(), map[string][]round{}
	for n := range b.rounds {
		for i := range all {
			w := all[(i+n)%len(all)] // nobody is always the first
			r, err := b.round(ctx, w, source, report.Tables)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			found[w.name] = append(found[w.name], r)
		}
	}
	fmt.Printf("\n%d rows of about 150 bytes in two tables, half of the rows of a shared database; %d rounds in turns (%s/%s, %d CPUs)\n", b.rows, b.rounds, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	fmt.Printf("%-34s %10s %10s %10s %10s %10s  %s\n", "", "rows/s", "us/row", "of it Go", "Postgres", "arrived", "rows/s and CPU against the bare stream, by round")
	for _, w := range all {
		list, against := found[w.name], ""
		for i, r := range list {
			c := found[bare][i]
			against += fmt.Sprintf(" %.2f/%.2f", r.perSecond/c.perSecond, (r.here+r.postgres)/(c.here+c.postgres))
		}
		fmt.Printf("%-34s %10.0f %10.1f %10.1f %10.1f %9.0f%% %s\n", w.name, rig.Median(list, func(r round) float64 { return r.perSecond }), rig.Median(list, func(r round) float64 { return r.here + r.postgres }),
			rig.Median(list, func(r round) float64 { return r.here }), rig.Median(list, func(r round) float64 { return r.postgres }), rig.Median(list, func(r round) float64 { return 100 * float64(r.arrived) / float64(b.rows) }), against)
	}
	return nil
}

func (b *bench) round(ctx context.Context, w way, source pg.Address, tables []*catalog.Table) (r round, err error) {
	dsn, err := b.cluster.Database(ctx)
	if err != nil {
		return r, err
	}
	target := pg.Address{DSN: dsn}
	if err := apply(ctx, target, schema+"; checkpoint"); err != nil {
		return r, err
	}
	self, family, err := b.spent()
	if err != nil {
		return r, err
	}
	began := time.Now()
	beside, err := w.run(ctx, source, target, tables)
	took := time.Since(began)
	if err != nil {
		return r, err
	}
	self2, family2, err := b.spent()
	if err != nil {
		return r, err
	}
	per := float64(b.rows) * 1000
	r = round{perSecond: float64(b.rows) / took.Seconds(), here: float64(self2-self+beside) / per, postgres: float64(family2-family) / per}
	r.arrived, err = ask(ctx, target, `select (select count(*) from public.orders) + (select count(*) from public.parts)`)
	return r, err
}

func (b *bench) spent() (self, family time.Duration, err error) {
	if self, err = rig.Self(); err == nil {
		family, err = rig.Family(b.cluster.PID())
	}
	return self, family, err
}

// moved is the mover as a session in mode offline runs it: cutting the ranges is part of it, the comparison is not.
func moved(parallel int) func(context.Context, pg.Address, pg.Address, []*catalog.Table) (time.Duration, error) {
	return func(ctx context.Context, source, target pg.Address, tables []*catalog.Table) (time.Duration, error) {
		kept := &pg.Kept{} // as a session has them
		defer kept.Close()
		source.Kept, target.Kept = kept, kept
		m := &mover.Mover{Source: source, Target: target, Session: "bench", Fence: 1, Enterprise: who, Tables: tables, Parallel: parallel}
		if err := m.Take(ctx); err != nil {
			return 0, err
		}
		if err := m.Prepare(ctx); err != nil {
			return 0, err
		}
		_, err := m.Copy(ctx)
		return 0, err
	}
}

// both opens a connection to each side.
func both(ctx context.Context, source, target pg.Address, do func(source, target *pgx.Conn) error) error {
	from, err := pg.Connect(ctx, source)
	if err != nil {
		return err
	}
	defer pg.Close(from)
	to, err := pg.Connect(ctx, target)
	if err != nil {
		return err
	}
	defer pg.Close(to)
	return do(from, to)
}

func bareCopy(ctx context.Context, source, target pg.Address, tables []*catalog.Table) (time.Duration, error) {
	return 0, both(ctx, source, target, func(from, to *pgx.Conn) error {
		for _, t := range tables {
			r, w := io.Pipe()
			go func() {
				_, err := from.PgConn().CopyTo(ctx, w, fmt.Sprintf(`copy (select %s from %s where enterprise_id = '%s') to stdout (format binary)`, columns, t.Quoted(), who))
				_ = w.CloseWithError(err) // never fails; nil is the end
			}()
			if _, err := to.PgConn().CopyFrom(ctx, r, fmt.Sprintf(`copy %s (%s) from stdin (format binary)`, t.Quoted(), columns)); err != nil {
				_ = r.CloseWithError(err) // never fails: the other side ends
				return err
			}
		}
		return nil
	})
}

// paged is how it is done by hand: pages without an order, each inserted by one statement.
func paged(ctx context.Context, source, target pg.Address, tables []*catalog.Table) (time.Duration, error) {
	return 0, both(ctx, source, target, func(from, to *pgx.Conn) error {
		for _, t := range tables {
			for offset := 0; ; offset += 1000 {
				rows, err := from.Query(ctx, fmt.Sprintf(`select %s from %s where enterprise_id = $1 limit 1000 offset $2`, columns, t.Quoted()), who, offset)
				if err != nil {
					return err
				}
				var places []string
				var values []any
				for rows.Next() {
					row, err := rows.Values()
					if err != nil {
						return err
					}
					n := len(values)
					places = append(places, fmt.Sprintf("($%d, $%d, $%d, $%d, $%d)", n+1, n+2, n+3, n+4, n+5))
					values = append(values, row...)
				}
				if err := rows.Err(); err != nil {
					return err
				}
				if len(places) == 0 {
					break
				}
				insert := fmt.Sprintf(`insert into %s (%s) values %s on conflict do nothing`, t.Quoted(), columns, strings.Join(places, ", ")) // pages overlap
				if _, err := to.Exec(ctx, insert, values...); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// piped is two psql: pg_dump takes whole tables, and cannot choose the rows of a tenant.
func piped(ctx context.Context, source, target pg.Address, tables []*catalog.Table) (spent time.Duration, err error) {
	for _, t := range tables {
		out, err := psql(ctx, source, fmt.Sprintf(`copy (select %s from %s where enterprise_id = '%s') to stdout`, columns, t.Quoted(), who))
		if err != nil {
			return 0, err
		}
		in, err := psql(ctx, target, fmt.Sprintf(`copy %s (%s) from stdin`, t.Quoted(), columns))
		if err != nil {
			return 0, err
		}
		var said bytes.Buffer
		r, w, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		out.Stdout, out.Stderr, in.Stdin, in.Stderr = w, os.Stderr, r, &said
		if err := out.Start(); err != nil {
			return 0, err
		}
		if err := in.Start(); err != nil {
			return 0, err
		}
		_, _ = w.Close(), r.Close() // the two have them
		if err := out.Wait(); err != nil {
			return 0, err
		}
		if err := in.Wait(); err != nil {
			return 0, fmt.Errorf("%w: %s", err, said.String())
		}
		for _, p := range []*os.ProcessState{out.ProcessState, in.ProcessState} {
			spent += p.UserTime() + p.SystemTime()
		}
	}
	return spent, nil
}

// psql has the password in its environment, which others do not see.
func psql(ctx context.Context, a pg.Address, sql string) (*exec.Cmd, error) {
	c, err := pg.Parse(a)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql)
	cmd.Env = append(os.Environ(), "PGHOST="+c.Host, fmt.Sprint("PGPORT=", c.Port), "PGUSER="+c.User, "PGPASSWORD="+c.Password, "PGDATABASE="+c.Database)
	return cmd, nil
}
