package relay

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox/relay/relaytest"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// ground is a running NATS server with the stream of a source.
type ground struct {
	t      *testing.T
	ctx    context.Context
	on     *relaytest.Ground
	server *embedded.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	stream sink.Stream
	outbox jetstream.Stream // of this name, whichever there is
}

func setup(t *testing.T, profile embedded.Profile) *ground {
	t.Helper()
	on := relaytest.Setup(t, profile)
	g := &ground{t: t, ctx: t.Context(), on: on, server: on.Server, nc: on.NC, js: on.JS, stream: on.Stream}
	var err error
	g.outbox, err = g.js.Stream(g.ctx, g.stream.Name)
	require.NoError(t, err)
	return g
}

func (g *ground) connect() *nats.Conn {
	g.t.Helper()
	return g.on.Connect()
}

// events are the events of the stream, oldest first.
func (g *ground) events() []*nats.Msg {
	g.t.Helper()
	return g.on.Events()
}

// positions are the positions of the events, in the order of the stream.
func (g *ground) positions() string {
	g.t.Helper()
	return g.on.Positions()
}

func words(from, to int) string { return relaytest.Words(from, to) }

// How long a condition is awaited, and how often it is looked at.
const (
	waitFor = relaytest.Within
	tick    = relaytest.Every
)

var withSubject = jetstream.WithPurgeSubject
