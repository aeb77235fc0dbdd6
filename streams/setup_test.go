package streams

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// A server that stops while it commits an atomic batch leaves the goroutines of the batch behind (nats-server 2.15.2).
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"))
}

// ground is a running server with the planned streams and a connection.
type ground struct {
	t      *testing.T
	ctx    context.Context
	server *Server
	nc     *nats.Conn
	js     jetstream.JetStream
	names  Names
}

// setup starts a server and makes the streams.
func setup(t *testing.T, profile Profile) *ground {
	t.Helper()
	g := bare(t, ServerOptions{Profile: profile})
	diffs, err := Ensure(g.ctx, g.js, testPlan(g.names))
	require.NoError(t, err)
	require.Empty(t, diffs)
	return g
}

// bare starts a server without streams.
func bare(t *testing.T, o ServerOptions) *ground {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	server, err := StartServer(o)
	require.NoError(t, err)
	g := &ground{t: t, ctx: t.Context(), server: server}
	t.Cleanup(func() { require.NoError(t, server.Shutdown(context.Background())) })
	g.nc = g.connect()
	g.js, err = JetStream(g.nc)
	require.NoError(t, err)
	return g
}

func testPlan(n Names) Plan {
	return Plan{Names: n, States: []string{"things"}, Views: []string{"thing_steps"}}
}

func (g *ground) connect() *nats.Conn {
	g.t.Helper()
	nc, err := Connect(ConnectOptions{Server: g.server, Name: "test"})
	require.NoError(g.t, err)
	g.t.Cleanup(nc.Close)
	return nc
}

func (g *ground) appender(o AppenderOptions) *Appender {
	g.t.Helper()
	a, err := NewAppender(g.nc, o)
	require.NoError(g.t, err)
	a.batchFrom = few + 1
	g.t.Cleanup(a.Close)
	return a
}

func (g *ground) commands(a *Appender) *Commands {
	g.t.Helper()
	c, err := NewCommands(a)
	require.NoError(g.t, err)
	g.t.Cleanup(c.Close)
	return c
}

// held is what a stream holds under a filter, oldest first.
func (g *ground) held(stream, filter string) []*jetstream.RawStreamMsg {
	g.t.Helper()
	g.eventually("a connection", g.nc.IsConnected)
	s, err := g.js.Stream(g.ctx, stream)
	require.NoError(g.t, err)
	var list []*jetstream.RawStreamMsg
	for seq := uint64(1); ; {
		m, err := s.GetMsg(g.ctx, seq, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return list
		}
		require.NoError(g.t, err)
		list = append(list, m)
		seq = m.Sequence + 1
	}
}

func (g *ground) eventually(what string, ok func() bool) {
	g.t.Helper()
	require.Eventually(g.t, ok, 20*time.Second, 5*time.Millisecond, what)
}

// event is a message for the events of a thing.
func event(id, typ, body string) *nats.Msg {
	return &nats.Msg{Subject: Names{}.Event("thing", "default."+id, typ), Data: []byte(body), Header: nats.Header{}}
}

// few messages are no batch in tests, whatever the disk is like.
const few = 16
