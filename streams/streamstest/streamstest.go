// Package streamstest starts an embedded server for a test, with what every test of streams needs of it.
package streamstest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// Env is a running server, a connection to it and JetStream on that. All of it ends with the test.
type Env struct {
	T      testing.TB
	Ctx    context.Context // of the test
	Server *embedded.Server
	NC     *nats.Conn
	JS     jetstream.JetStream
	Names  streams.Names
}

// Start starts a server without streams. Without a directory it gets one of the test's, and without a log it says nothing.
func Start(t testing.TB, o embedded.Options) *Env {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	server, err := embedded.Start(o)
	require.NoError(t, err)
	e := &Env{T: t, Ctx: t.Context(), Server: server, Names: o.Names}
	t.Cleanup(func() { require.NoError(t, server.Shutdown(context.Background())) })
	e.NC = e.Connect()
	e.JS, err = streams.JetStream(e.NC)
	require.NoError(t, err)
	return e
}

// Ensure makes the streams of a plan, of which none may be there otherwise than planned.
func (e *Env) Ensure(p streams.Plan) *Env {
	e.T.Helper()
	diffs, err := streams.Ensure(e.Ctx, e.JS, p)
	require.NoError(e.T, err)
	require.Empty(e.T, diffs)
	return e
}

// Connect opens another connection.
func (e *Env) Connect() *nats.Conn {
	e.T.Helper()
	nc, err := streams.Connect(streams.ConnectOptions{Server: e.Server, Name: "test"})
	require.NoError(e.T, err)
	e.T.Cleanup(nc.Close)
	return nc
}

// Held is what a stream holds under a filter, oldest first.
func (e *Env) Held(stream, filter string) []*jetstream.RawStreamMsg {
	e.T.Helper()
	e.Eventually("a connection", e.NC.IsConnected)
	s, err := e.JS.Stream(e.Ctx, stream)
	require.NoError(e.T, err)
	var list []*jetstream.RawStreamMsg
	for seq := uint64(1); ; {
		m, err := s.GetMsg(e.Ctx, seq, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return list
		}
		require.NoError(e.T, err)
		list = append(list, m)
		seq = m.Sequence + 1
	}
}

// Eventually waits up to 20 s.
func (e *Env) Eventually(what string, ok func() bool) {
	e.T.Helper()
	require.Eventually(e.T, ok, 20*time.Second, 5*time.Millisecond, what)
}
