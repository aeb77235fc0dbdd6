package relay

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/relaytest"
)

// pg is the cluster of the tests.
var pg = &relaytest.Postgres

func TestMain(m *testing.M) { relaytest.Main(m) }

// outboxed is a database for a test, with an outbox.
func outboxed(t testing.TB) (dsn string) {
	t.Helper()
	return relaytest.Database(t)
}

// shop is a database with an outbox, beside the ground.
type shop struct {
	*ground
	dsn  string
	pool *pgxpool.Pool
}

func openShop(t *testing.T, mode outbox.Mode) *shop {
	t.Helper()
	return shopAt(t, setup(t, embedded.OS), outboxed(t), mode)
}

func shopAt(t *testing.T, g *ground, dsn string, mode outbox.Mode) *shop {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), migrate(t, dsn, mode))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &shop{g, dsn, pool}
}

// migrate makes the tables.
func migrate(t testing.TB, dsn string, mode outbox.Mode) string {
	t.Helper()
	require.NoError(t, outbox.Init(t.Context(), dsn, "", outbox.Settings{Mode: mode}))
	return dsn
}

// relay makes a relay of the shop on a connection of its own.
func (s *shop) relay(mode outbox.Mode, change ...func(*Relay)) *Relay {
	s.t.Helper()
	nc := s.connect()
	js, err := streams.JetStream(nc)
	require.NoError(s.t, err)
	r := &Relay{NC: nc, JS: js, Node: "a", Log: testLog(s.t), Config: outbox.Config{
		Name: "shop", DSN: s.dsn, Mode: mode, Poll: 20 * time.Millisecond, BaseBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
	}}
	for _, f := range change {
		f(r)
	}
	r.init()
	return r
}

// run runs a relay until the test ends or stop is called; stop returns what Run returned.
func (s *shop) run(r *Relay) (stop func() error) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var stopped atomic.Bool
	stop = func() error {
		if stopped.Swap(true) {
			return nil
		}
		cancel()
		return <-done
	}
	s.t.Cleanup(func() { _ = stop() })
	return stop
}

// inEachMode runs a test beside itself for each mode, with a shop of its own.
func inEachMode(t *testing.T, test func(t *testing.T, s *shop, mode outbox.Mode)) {
	t.Helper()
	for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := openShop(t, mode)
			test(t, s, mode)
		})
	}
}

// begin runs a relay.
func (s *shop) begin(mode outbox.Mode, change ...func(*Relay)) (r *Relay, stop func() error) {
	s.t.Helper()
	r = s.relay(mode, change...)
	return r, s.run(r)
}

// add appends an event and commits it.
func (s *shop) add(id string, n int) {
	s.t.Helper()
	_, err := s.pool.Exec(s.ctx, `select outbox_append('order', $1, 'order.paid', $2::jsonb)`, id, fmt.Sprintf(`{"n": %d}`, n))
	require.NoError(s.t, err)
}

// numbered are the n of the payloads of an aggregate, in the order of the stream.
func (s *shop) numbered(id string) string {
	s.t.Helper()
	var list []string
	for _, m := range s.events() {
		if strings.HasSuffix(m.Header.Get("ce-subject"), "/"+id) {
			list = append(list, strings.Trim(string(m.Data), `{"n,: }`))
		}
	}
	return strings.Join(list, " ")
}

func (s *shop) exec(query string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.ctx, query, args...)
	require.NoError(s.t, err)
}

func (s *shop) count(query string, args ...any) int {
	s.t.Helper()
	var n int
	require.NoError(s.t, s.pool.QueryRow(s.ctx, query, args...).Scan(&n))
	return n
}

// stored is how many events the stream holds.
func (s *shop) stored() int {
	info, err := s.outbox.Info(s.ctx, jetstream.WithSubjectFilter("outbox.>"))
	if err != nil {
		return -1
	}
	n := 0
	for _, c := range info.State.Subjects {
		n += int(c)
	}
	return n
}

func (s *shop) eventually(n int) {
	s.t.Helper()
	ok := func() bool { return s.stored() >= n }
	if !waits(ok) {
		require.Equal(s.t, n, s.stored(), "events in the stream")
	}
}

func waits(ok func() bool) bool {
	for end := time.Now().Add(waitFor); time.Now().Before(end); {
		if ok() {
			return true
		}
		<-time.After(tick)
	}
	return false
}

// check compares the table with the stream: every row once, in order per aggregate, nothing else.
func (s *shop) check() {
	s.t.Helper()
	want := map[string][]string{}
	rows, err := s.pool.Query(s.ctx, `select aggregate_type || '/' || aggregate_id, event_id::text from outbox_log order by seq`)
	require.NoError(s.t, err)
	var agg, id string
	_, err = pgx.ForEachRow(rows, []any{&agg, &id}, func() error { want[agg] = append(want[agg], id); return nil })
	require.NoError(s.t, err)
	total := 0
	for _, l := range want {
		total += len(l)
	}
	s.eventually(total)
	compare(s.t, want, s.events())
}

func compare(t *testing.T, want map[string][]string, events []*nats.Msg) {
	t.Helper()
	have := map[string][]string{}
	for _, m := range events {
		have[m.Header.Get("ce-subject")] = append(have[m.Header.Get("ce-subject")], m.Header.Get("ce-id"))
	}
	for agg, ids := range want {
		if !slices.Equal(ids, have[agg]) {
			require.Equal(t, strings.Join(ids, "\n"), strings.Join(have[agg], "\n"), "events of "+agg)
		}
		delete(have, agg)
	}
	require.Empty(t, have, "events of no row")
}

// testLog shows what a relay says when a test fails, or with -v.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}
