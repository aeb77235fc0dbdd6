// Package relaytest is what the tests of a relay and its parts stand on: databases with an outbox, and a NATS server with the stream.
package relaytest

// Tests call Main for one Postgres cluster per package, and Database or Pool for a database of their own with an outbox; Setup starts a NATS server with the stream. Row and
// Items make rows to publish, Opener a relay's side that publishes them, and Events and Positions read what the stream has then.

import (
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
	"github.com/bcc94042/instar/streams/streamstest"
)

// Postgres is the cluster of the tests of a package.
var Postgres postgres.Suite

var template sync.Once

// Main runs the tests of a package.
//
// A server that stops while it commits an atomic batch leaves the goroutines of the batch behind (nats-server 2.15.2).
//
// Most tests wait for most of their time, so more of them run side by side than there are processors.
func Main(m goleak.TestingM) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
	goleak.VerifyTestMain(Postgres.Around(m),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"))
}

// Database is one for a test, with an outbox in mode log: a copy of what is made once.
func Database(t testing.TB) (dsn string) {
	t.Helper()
	template.Do(func() {
		require.NoError(t, outbox.Init(t.Context(), Postgres.Cluster(t).DSN("template1"), "", outbox.Settings{}))
	})
	return Postgres.Database(t)
}

// Pool is that of a new database, as a relay opens it.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	store, err := outbox.Open(t.Context(), Database(t), "")
	require.NoError(t, err)
	t.Cleanup(store.Pool.Close)
	return store.Pool
}

// Exec executes a statement.
func Exec(t testing.TB, pool *pgxpool.Pool, query string, args ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), query, args...)
	require.NoError(t, err)
}

// Count is the one number of a query.
func Count(t testing.TB, pool *pgxpool.Pool, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), query, args...).Scan(&n))
	return n
}

// Ground is a running NATS server with the stream of a source.
type Ground struct {
	*streamstest.Env
	Stream sink.Stream
	Can    sink.Abilities
}

// Setup starts one.
func Setup(t testing.TB, profile embedded.Profile) *Ground {
	t.Helper()
	g := &Ground{Env: streamstest.Start(t, embedded.Options{Profile: profile}).Ensure(streams.Plan{}), Stream: sink.Stream{Name: "OUTBOX", Prefix: "outbox"}}
	var err error
	g.Can, err = g.Stream.Ensure(g.Ctx, g.JS)
	require.NoError(t, err)
	return g
}

// Opener is a relay's publishing side on a connection of its own.
func (g *Ground) Opener(node string, can sink.Abilities, fsync bool) *session.Opener {
	g.T.Helper()
	nc := g.Connect()
	js, err := streams.JetStream(nc)
	require.NoError(g.T, err)
	p := &sink.Publisher{NC: nc, Can: can, Fsync: fsync, Wait: 2 * time.Second, Prefix: g.Stream.Prefix, Source: "shop"}
	require.NoError(g.T, p.Start())
	g.T.Cleanup(p.Close)
	return &session.Opener{JS: js, Pub: p, Stream: g.Stream, Source: "shop", Mode: "log", Node: node, Cluster: "1/shop"}
}

// Events are the events of the stream, oldest first.
func (g *Ground) Events() []*nats.Msg {
	g.T.Helper()
	require.Eventually(g.T, g.NC.IsConnected, 10*time.Second, time.Millisecond)
	s, err := g.JS.Stream(g.Ctx, g.Stream.Name)
	require.NoError(g.T, err)
	n, err := s.Info(g.Ctx, jetstream.WithSubjectFilter("outbox.>"))
	require.NoError(g.T, err)
	left := uint64(0)
	for _, c := range n.State.Subjects {
		left += c
	}
	if left == 0 {
		return nil
	}
	c, err := g.JS.OrderedConsumer(g.Ctx, g.Stream.Name, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"outbox.>"}})
	require.NoError(g.T, err)
	it, err := c.Messages()
	require.NoError(g.T, err)
	defer func() { // who looks again and again has no thousand consumers
		it.Stop()
		_ = g.JS.DeleteConsumer(g.Ctx, g.Stream.Name, c.CachedInfo().Name) // it ends by itself
	}()
	var list []*nats.Msg
	for range left {
		m, err := it.Next(jetstream.NextMaxWait(10 * time.Second))
		require.NoError(g.T, err)
		list = append(list, &nats.Msg{Subject: m.Subject(), Data: m.Data(), Header: m.Headers()})
	}
	return list
}

// Positions are the positions of the events, in the order of the stream.
func (g *Ground) Positions() string {
	g.T.Helper()
	var list []string
	for _, m := range g.Events() {
		list = append(list, m.Header.Get(sink.HeaderPosition))
	}
	return strings.Join(list, " ")
}

// Row is one of three aggregates.
func Row(n int) *sink.Row {
	return &sink.Row{Pos: sink.Position(n), Message: outbox.Message{
		ID: uuid.Must(uuid.NewV7()), OccurredAt: time.Now(), AggregateType: "order", AggregateID: fmt.Sprint("o-", n%3), EventType: "order.paid",
		Payload: fmt.Appendf(nil, `{"n":%d}`, n), Headers: map[string]string{"tenant": "t1"},
	}}
}

// Items are such rows in the hands of a session.
func Items(s sink.Session, numbers ...int) []sink.Item {
	var list []sink.Item
	for _, n := range numbers {
		list = append(list, sink.Item{Row: Row(n), Session: s})
	}
	return list
}

// Span are the numbers from one to another.
func Span(from, to int) []int {
	var list []int
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

// Words are these with spaces between.
func Words(from, to int) string { return strings.Trim(fmt.Sprint(Span(from, to)), "[]") }

// How long a condition is awaited, and how often it is looked at.
const (
	Within = time.Minute
	Every  = 10 * time.Millisecond
)
