package publish

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// A server that stops while it commits an atomic batch leaves the goroutines of the batch behind (nats-server 2.15.2).
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"))
}

// ground is a running server with the planned streams, and what writes to them.
type ground struct{ *streamstest.Env }

func setup(t *testing.T, profile embedded.Profile) *ground {
	t.Helper()
	return &ground{streamstest.Start(t, embedded.Options{Profile: profile}).Ensure(streams.Plan{States: []string{"things"}, Views: []string{"thing_steps"}})}
}

func (g *ground) appender(o AppenderOptions) *Appender {
	g.T.Helper()
	a, err := NewAppender(g.NC, o)
	require.NoError(g.T, err)
	a.batchFrom = few + 1
	g.T.Cleanup(a.Close)
	return a
}

func (g *ground) commands(a *Appender) *Commands {
	g.T.Helper()
	c, err := NewCommands(a)
	require.NoError(g.T, err)
	g.T.Cleanup(c.Close)
	return c
}

// event is a message for the events of a thing.
func event(id, typ, body string) *nats.Msg {
	return &nats.Msg{Subject: streams.Names{}.Event("thing", "default."+id, typ), Data: []byte(body), Header: nats.Header{}}
}

// few messages are no batch in tests, whatever the disk is like.
const few = 16
