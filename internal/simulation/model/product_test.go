package model

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// node is a model that the product takes for the server in its process.
type node struct{ *Server }

func (node) LoopbackURL() string                    { return "" }
func (node) Credentials() (user, password string)   { return "", "" }
func (n node) InProcessConn() (c net.Conn, _ error) { return n.Connect(), nil }

// connected is a connection of the product's to a model of its own, with the streams of an installation.
func connected(t testing.TB) (*nats.Conn, jetstream.JetStream, streams.Plan) {
	t.Helper()
	s := New(Options{})
	s.Auto(true)
	t.Cleanup(s.Close)
	nc, err := streams.Connect(streams.ConnectOptions{Server: node{s}, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	plan := streams.Plan{States: []string{"things"}, Views: []string{"seen"}, Live: []string{"things"}}
	diffs, err := streams.Ensure(t.Context(), js, plan)
	require.NoError(t, err)
	require.Empty(t, diffs)
	return nc, js, plan
}

// What package streams creates it finds again as it should be, and the doors of the product work.
func TestTheProductRunsOnIt(t *testing.T) {
	t.Parallel()
	nc, js, plan := connected(t)
	ctx := t.Context()
	diffs, err := streams.Ensure(ctx, js, plan)
	require.NoError(t, err)
	require.Empty(t, diffs)

	for _, group := range []bool{false, true} {
		a, err := publish.NewAppender(nc, publish.AppenderOptions{Group: group})
		require.NoError(t, err)
		commands, err := publish.NewCommands(a)
		require.NoError(t, err)
		cmd := publish.Command{Machine: "task", Key: "default.t1", Name: "start", ID: fmt.Sprint("one ", group)}
		first, err := commands.Send(ctx, cmd)
		require.NoError(t, err)
		if !group { // grouped, a command whose id was seen is sent again by itself
			second, err := commands.Send(ctx, cmd)
			require.NoError(t, err)
			require.Equal(t, first.Seq, second.Seq)
			require.True(t, second.Duplicate)
		}
		bucket := streams.BucketStream(plan.Names.Bucket("things"))
		w := kv.WriteAt(plan.Names.Bucket("things"), fmt.Sprint("k-", group), []byte("1"), 0)
		require.Equal(t, bucket, w.Stream)
		require.NoError(t, a.Append(ctx, []publish.Write{w})[0].Err)
		require.ErrorIs(t, a.Append(ctx, []publish.Write{w})[0].Err, publish.ErrConflict)
		commands.Close()
		a.Close()
	}

	b, err := kv.Open(ctx, js, plan.Names.Bucket("things"), kv.JSON[int]())
	require.NoError(t, err)
	rev, err := b.Put(ctx, "a", 1, 0)
	require.NoError(t, err)
	_, err = b.Put(ctx, "a", 2, 0)
	require.ErrorIs(t, err, kv.ErrConflict)
	e, err := b.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, rev, e.Revision)
	require.NoError(t, b.Purge(ctx, "a", rev))
	_, err = b.Get(ctx, "a")
	require.ErrorIs(t, err, kv.ErrNotFound)

	l := kv.Lease{JS: js, Bucket: plan.Names.Bucket(streams.OwnersBucket), Key: "lease", Holder: "me", Life: 3 * time.Second}
	_, err = l.Take(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Renew(ctx))
	other := kv.Lease{JS: js, Bucket: l.Bucket, Key: l.Key, Holder: "you", Life: 3 * time.Second}
	_, err = other.Take(ctx)
	require.ErrorIs(t, err, kv.ErrHeld)
	require.NoError(t, l.Release(ctx))
	_, err = other.Take(ctx)
	require.NoError(t, err)
}

// BenchmarkPublish is a publish and its answer, many under way.
func BenchmarkPublish(b *testing.B) {
	nc, _, plan := connected(b)
	a, err := publish.NewAppender(nc, publish.AppenderOptions{})
	require.NoError(b, err)
	b.Cleanup(a.Close)
	slots := make(chan struct{}, 256)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		slots <- struct{}{}
		m := &nats.Msg{Subject: plan.Names.Event("task", fmt.Sprint("default.t", i%100), "state.started"), Header: nats.Header{"Nats-Msg-Id": {fmt.Sprint(i)}}, Data: []byte(`{"n":1}`)}
		a.Go(plan.Names.Stream(streams.EventStream), m, func(r publish.Result) {
			if r.Err != nil {
				b.Error(r.Err)
			}
			<-slots
		})
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
}

// BenchmarkCycle is what an engine does for a command: the command is stored and delivered, a value is written at its revision, an event is stored, and
// the command is acked.
func BenchmarkCycle(b *testing.B) {
	nc, js, plan := connected(b)
	ctx := context.Background()
	a, err := publish.NewAppender(nc, publish.AppenderOptions{})
	require.NoError(b, err)
	b.Cleanup(a.Close)
	cons, err := js.CreateConsumer(ctx, plan.Names.Stream(streams.CommandStream), jetstream.ConsumerConfig{Durable: "p", FilterSubject: plan.Names.StoredAll(), AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1000})
	require.NoError(b, err)
	done := make(chan struct{}, 1024)
	revs := make([]uint64, 100)
	n := 0
	cc, err := cons.Consume(func(m jetstream.Msg) {
		k := n % len(revs)
		n++
		w := kv.WriteAt(plan.Names.Bucket("things"), fmt.Sprint("k", k), m.Data(), revs[k])
		event := &nats.Msg{Subject: plan.Names.Event("task", fmt.Sprint("default.t", k), "state.started"), Header: nats.Header{}, Data: m.Data()}
		r := a.Append(ctx, []publish.Write{w, {Stream: plan.Names.Stream(streams.EventStream), Msg: event}})
		if revs[k] = r[0].Seq; r[0].Err != nil {
			b.Error(r[0].Err)
		}
		_ = m.Ack()
		done <- struct{}{}
	})
	require.NoError(b, err)
	b.Cleanup(cc.Stop)
	slots := make(chan struct{}, 64)
	go func() {
		for range done {
			<-slots
		}
	}()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		slots <- struct{}{}
		a.Go(plan.Names.Stream(streams.CommandStream), &nats.Msg{Subject: plan.Names.Command("task", fmt.Sprint("default.t", i%100), "start"), Header: nats.Header{"Nats-Msg-Id": {fmt.Sprint(i)}}, Data: []byte(`{}`)}, func(publish.Result) {})
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
}

// A purge whose answer is lost ends: nobody else would end it.
func TestAPurgeWithoutAnAnswerEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		s.Auto(true)
		defer s.Close()
		nc, err := streams.Connect(streams.ConnectOptions{Server: node{s}, Name: "test"})
		require.NoError(t, err)
		defer nc.Close()
		s.Auto(false) // nothing is processed any more
		ended := make(chan error, 1)
		go func() { ended <- streams.Purge(context.Background(), nc, "EVENTS", "instar.evt.>", 7) }()
		select {
		case err := <-ended:
			require.ErrorIs(t, err, context.DeadlineExceeded)
		case <-time.After(time.Minute):
			t.Error("it still waits")
		}
	})
}
