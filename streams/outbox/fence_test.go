package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
)

// A reader behind the fence sees every row that is committed, although transactions commit in another order than they take
// numbers, are rolled back as a whole or to a savepoint, and are prepared before they are committed. Without the fence the
// same reader loses rows.
func TestAReaderBehindTheFenceLosesNothing(t *testing.T) {
	t.Parallel()
	for name, fenced := range map[string]bool{"Fenced": true, "Naive": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, conn := setup(t, Log)
			var stop atomic.Bool
			writers := make(chan error)
			for n := range 8 {
				c := dial(t, dsn)
				go func() { writers <- write(t.Context(), c, n, &stop) }()
			}
			r := &reader{conn: conn, fenced: fenced}
			for began := time.Now(); time.Since(began) < 3*time.Second; {
				require.NoError(t, r.once(t.Context()))
			}
			stop.Store(true)
			for range 8 {
				require.NoError(t, <-writers)
			}
			for last := int64(-1); last != r.at; {
				last = r.at
				require.NoError(t, r.once(t.Context()))
			}
			rows, err := conn.Query(t.Context(), `select seq from outbox_log order by seq`)
			require.NoError(t, err)
			all, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			require.NoError(t, err)
			require.Greater(t, len(all), 200)
			if fenced {
				require.Equal(t, all, r.seen)
				return
			}
			require.Less(t, len(r.seen), len(all), "this test cannot fail")
		})
	}
}

// write appends events in transactions of all kinds.
func write(ctx context.Context, conn *pgx.Conn, n int, stop *atomic.Bool) error {
	appendOne := `select outbox_append('order', 'a` + fmt.Sprint(n) + `', 'order.paid', '{}')`
	for i := 0; !stop.Load(); i++ {
		prepared := fmt.Sprintf("%s-w%d-%d", conn.Config().Database, n, i) // of the whole cluster
		var pause string
		if rand.IntN(4) == 0 {
			pause = fmt.Sprintf(`select pg_sleep(%f)`, rand.Float64()/50)
		}
		var steps []string
		switch rand.IntN(5) {
		case 0:
			steps = []string{`begin`, appendOne, pause, appendOne, `rollback`}
		case 1:
			steps = []string{`begin`, appendOne, `savepoint s`, appendOne, pause, `rollback to savepoint s`, appendOne, `commit`}
		case 2:
			steps = []string{`begin`, appendOne, pause, `prepare transaction '` + prepared + `'`, pause, `commit prepared '` + prepared + `'`}
		case 3:
			steps = []string{`begin`, appendOne, pause, appendOne, pause, `commit`}
		default:
			steps = []string{appendOne}
		}
		for _, step := range steps {
			if step == "" {
				continue
			}
			if _, err := conn.Exec(ctx, step); err != nil {
				return fmt.Errorf("%s: %w", step, err)
			}
		}
	}
	return nil
}

// reader follows the log by its numbers.
type reader struct {
	conn   *pgx.Conn
	fenced bool
	at     int64
	seen   []int64
}

func (r *reader) once(ctx context.Context) error {
	var mark int64
	var writers []string
	if err := r.conn.QueryRow(ctx, `select mark, writers from outbox_fence()`).Scan(&mark, &writers); err != nil {
		return err
	}
	for open := r.fenced; open; {
		if err := r.conn.QueryRow(ctx, `select outbox_writers() && $1`, writers).Scan(&open); err != nil {
			return err
		}
	}
	rows, err := r.conn.Query(ctx, `select seq from outbox_log where seq > $1 and seq <= $2 order by seq`, r.at, mark)
	if err != nil {
		return err
	}
	seen, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(seen) == 0 {
		return err
	}
	r.seen, r.at = slices.Concat(r.seen, seen), seen[len(seen)-1]
	if r.fenced {
		r.at = mark
	}
	return nil
}

// Numbers up to the mark are not given out again after a crash, also when writers do not wait for the disk.
func TestACrashForgetsNoNumberUpToTheMark(t *testing.T) {
	t.Parallel()
	pg.Cluster(t) // skips without Postgres
	dir, err := os.MkdirTemp("", "instar-pg-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c, err := postgres.Start(t.Context(), postgres.Options{Dir: dir, Config: map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	dsn := c.DSN("postgres")
	require.NoError(t, Init(t.Context(), dsn, "", Settings{}))
	forgot := false
	for n := range 6 {
		conn := dial(t, dsn)
		for range 200 {
			run(t, conn, `select outbox_append('order', '1', 'order.paid', '{}')`)
		}
		last := one[int64](t, conn, `select max(seq) from outbox_log`)
		fenced := n%2 == 0
		if fenced {
			require.Equal(t, last, one[int64](t, conn, `select mark from outbox_fence()`))
		}
		require.NoError(t, c.Kill())
		require.NoError(t, c.Restart(t.Context()))
		run(t, dial(t, dsn), `select outbox_append('order', '1', 'order.paid', '{}')`)
		next := one[int64](t, dial(t, dsn), `select max(seq) from outbox_log`)
		if fenced {
			require.Greater(t, next, last)
		}
		forgot = forgot || next <= last
	}
	require.True(t, forgot, "the crashes forgot nothing: this test cannot fail")
}
