package embedded

import (
	"context"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/streams"
)

// A server that stops while it commits an atomic batch leaves the goroutines of the batch behind (nats-server 2.15.2).
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"))
}

// running is a server and a connection to it, as streamstest.Env, which these tests cannot import.
type running struct {
	Server *Server
	NC     *nats.Conn
	JS     jetstream.JetStream
}

// run starts a server that runs until the test ends.
func run(t *testing.T, o Options) *running {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.Background())) })
	g := &running{Server: s}
	g.NC, g.JS = connected(t, s)
	t.Cleanup(g.NC.Close)
	return g
}

// connected is a connection that its caller closes.
func connected(t *testing.T, s *Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := streams.Connect(streams.ConnectOptions{Server: s, Name: "test"})
	require.NoError(t, err)
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	return nc, js
}

// things is a plan of a machine with entities and a view.
func things(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	diffs, err := streams.Ensure(t.Context(), js, streams.Plan{States: []string{"things"}, Views: []string{"thing_steps"}})
	require.NoError(t, err)
	require.Empty(t, diffs)
}
