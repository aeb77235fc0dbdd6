package tables

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/streams/outbox"
)

var (
	pg   postgres.Suite
	long = flag.Int("long", 1, "how many times as many operations")
)

func TestMain(m *testing.M) { os.Exit(pg.Around(m).Run()) }

// side is the model, or a real Postgres, with connections to it.
type side struct {
	conns []*pgx.Conn
}

const (
	apps    = 3 // connections that append, in transactions that stay open
	relay   = apps
	another = apps + 1
)

// connect makes the connections. What would wait for a lock fails: neither side is to stand still.
func connect(t *testing.T, dsn string, dial pgconn.DialFunc) *side {
	s := &side{}
	for range another + 1 {
		config, err := pgx.ParseConfig(dsn)
		require.NoError(t, err)
		config.RuntimeParams["lock_timeout"] = "30ms"
		if dial != nil {
			config.DialFunc = dial
		}
		c, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		s.conns = append(s.conns, c)
	}
	return s
}

// both are the model, and a real Postgres with the same outbox.
func both(t *testing.T, mode outbox.Mode) (m *Server, model, real *side) {
	t.Helper()
	dsn := pg.Copy(t, string(mode), func(dsn string) error {
		return outbox.Init(t.Context(), dsn, "", outbox.Settings{Mode: mode, Shards: 2})
	})
	m = New(Options{Mode: string(mode), Shards: 2})
	m.Auto(true)
	model = connect(t, "postgres://model@127.0.0.1/model?sslmode=disable", func(context.Context, string, string) (net.Conn, error) {
		c, _ := m.Dial()
		return c, nil
	})
	return m, model, connect(t, dsn, nil)
}

// Each statement has the types that Postgres says.
func TestTypesAreThoseOfPostgres(t *testing.T) {
	t.Parallel()
	_, model, real := both(t, outbox.Log)
	for _, s := range known {
		var types [2]string
		for i, side := range []*side{model, real} {
			d, err := side.conns[0].Prepare(t.Context(), s.name, s.text)
			require.NoError(t, err, s.name)
			var columns []uint32
			for _, f := range d.Fields {
				columns = append(columns, f.DataTypeOID)
			}
			types[i] = fmt.Sprint(d.ParamOIDs, columns)
		}
		require.Equal(t, types[1], types[0], s.name)
	}
}

// ask sends something on a connection, and returns the answer as text: rows without times of the day, the tag, or the code of the error.
func (s *side) ask(ctx context.Context, o operation) string {
	if o.name == o.text { // begin and its like
		tag, err := s.conns[o.conn].Exec(ctx, o.text)
		return fmt.Sprint(tag, err)
	}
	rows, err := s.conns[o.conn].Query(ctx, o.text, o.args...)
	var lines []string
	if err == nil {
		lines, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) {
			values, err := r.Values()
			for i, v := range values {
				values[i] = told(v, o.name)
			}
			return fmt.Sprint(values...), err
		})
	}
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused):
		return refused.Code
	case err != nil:
		return err.Error()
	}
	if !slices.Contains([]string{"due", "readAll", "readShards", "waiting"}, o.name) {
		slices.Sort(lines)
	}
	return strings.Join(append(lines, rows.CommandTag().String()), "\n")
}

// told is a value without what differs between two databases: moments, names of transactions, and what is on disk.
func told(v any, name string) any {
	switch x := v.(type) {
	case time.Time:
		return "a time"
	case string:
		if name == "missing" { // of rows that were sent at the same moment, any
			return "a row"
		}
	case pgtype.InfinityModifier:
		return "never"
	case float64:
		return math.Round(x / 1000)
	case pgtype.Numeric:
		f, _ := x.Float64Value()
		return math.Round(f.Float64 / 1000)
	case []any:
		if name == "fence" {
			return fmt.Sprint(len(x), " writers")
		}
	case bool:
		if name == "flushLog" {
			return "whatever"
		}
	}
	return v
}

// Random operations are answered in the same way by both: appends in transactions that are open at the same time, what relays of both modes read and write, what operators do.
func TestTheModelAnswersAsPostgresDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*long * 2) {
		for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
			t.Run(fmt.Sprintf("%s-%d", mode, seed), func(t *testing.T) {
				t.Parallel()
				m, model, real := both(t, mode)
				g := &generator{r: rand.New(rand.NewPCG(seed, 1)), m: m, mode: string(mode)}
				var done []string
				for n := range 120 {
					o := g.next()
					want, have := real.ask(t.Context(), o), model.ask(t.Context(), o)
					done = append(done, fmt.Sprintf("%d on %d: %s %v: %s", n, o.conn, o.name, o.args, strings.ReplaceAll(want, "\n", " | ")))
					if want != have {
						require.Equal(t, want, have, strings.Join(done, "\n"))
					}
					g.answered(o, have)
				}
			})
		}
	}
}
