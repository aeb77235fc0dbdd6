package relay

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
)

// ground is a running NATS server with the stream of a source.
type ground struct {
	t      *testing.T
	ctx    context.Context
	server *embedded.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	stream Stream
	outbox jetstream.Stream // of this name, whichever there is
	can    abilities
}

func setup(t *testing.T, profile embedded.Profile) *ground {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Profile: profile, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Shutdown(context.Background())) })
	g := &ground{t: t, ctx: t.Context(), server: server, stream: Stream{}.withDefaults()}
	g.nc = g.connect()
	g.js, err = streams.JetStream(g.nc)
	require.NoError(t, err)
	_, err = streams.Ensure(g.ctx, g.js, streams.Plan{})
	require.NoError(t, err)
	g.can, err = g.stream.ensure(g.ctx, g.js)
	require.NoError(t, err)
	g.outbox, err = g.js.Stream(g.ctx, g.stream.Name)
	require.NoError(t, err)
	return g
}

func (g *ground) connect() *nats.Conn {
	g.t.Helper()
	nc, err := streams.Connect(streams.ConnectOptions{Server: g.server, Name: "test"})
	require.NoError(g.t, err)
	g.t.Cleanup(nc.Close)
	return nc
}

// opener is a relay's publishing side on a connection of its own.
func (g *ground) opener(node string, can abilities, fsync bool) *opener {
	g.t.Helper()
	nc := g.connect()
	js, err := streams.JetStream(nc)
	require.NoError(g.t, err)
	p := &publisher{nc: nc, can: can, fsync: fsync, wait: 2 * time.Second, enc: newEncoder("outbox", "shop", can.maxBytes)}
	require.NoError(g.t, p.start())
	g.t.Cleanup(p.close)
	return &opener{js: js, pub: p, stream: g.stream, source: "shop", mode: "log", node: node, cluster: "1/shop", clock: time.Now}
}

// events are the events of the stream, oldest first.
func (g *ground) events() []*nats.Msg {
	g.t.Helper()
	require.Eventually(g.t, g.nc.IsConnected, 10*time.Second, time.Millisecond)
	s, err := g.js.Stream(g.ctx, g.stream.Name)
	require.NoError(g.t, err)
	n, err := s.Info(g.ctx, jetstream.WithSubjectFilter("outbox.>"))
	require.NoError(g.t, err)
	left := uint64(0)
	for _, c := range n.State.Subjects {
		left += c
	}
	if left == 0 {
		return nil
	}
	c, err := g.js.OrderedConsumer(g.ctx, g.stream.Name, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"outbox.>"}})
	require.NoError(g.t, err)
	it, err := c.Messages()
	require.NoError(g.t, err)
	defer it.Stop()
	var list []*nats.Msg
	for range left {
		m, err := it.Next(jetstream.NextMaxWait(10 * time.Second))
		require.NoError(g.t, err)
		list = append(list, &nats.Msg{Subject: m.Subject(), Data: m.Data(), Header: m.Headers()})
	}
	return list
}

// positions are the positions of the events, in the order of the stream.
func (g *ground) positions() string {
	g.t.Helper()
	var list []string
	for _, m := range g.events() {
		list = append(list, m.Header.Get(HeaderPosition))
	}
	return strings.Join(list, " ")
}

// example is a row of the shop.
func example(n int) *row {
	return &row{pos: position(n), Message: outbox.Message{
		ID: uuid.Must(uuid.NewV7()), OccurredAt: time.Now(), AggregateType: "order", AggregateID: fmt.Sprint("o-", n%3), EventType: "order.paid",
		Payload: fmt.Appendf(nil, `{"n":%d}`, n), Headers: map[string]string{"tenant": "t1"},
	}}
}

func items(s *session, numbers ...int) []item {
	var list []item
	for _, n := range numbers {
		list = append(list, item{example(n), s})
	}
	return list
}

func span(from, to int) []int {
	var list []int
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

func words(from, to int) string { return strings.Trim(fmt.Sprint(span(from, to)), "[]") }

// How long a condition is awaited, and how often it is looked at.
const (
	waitFor = 20 * time.Second
	tick    = 10 * time.Millisecond
)

var withSubject = jetstream.WithPurgeSubject
