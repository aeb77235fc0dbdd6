package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

// A reader watches buckets and reads events where it may make consumers as it likes.
func TestReadersHaveCopies(t *testing.T) {
	t.Parallel()
	o := Options{Dir: t.TempDir(), Profile: OS}
	s, err := Start(o)
	require.NoError(t, err)
	plan := streams.Plan{States: []string{"things"}, Events: 8 << 20}
	before, err := streams.Connect(streams.ConnectOptions{Server: s, Name: "before"})
	require.NoError(t, err)
	js, err := streams.JetStream(before)
	require.NoError(t, err)
	_, err = streams.Ensure(t.Context(), js, plan)
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "$KV.things.default.a", []byte("1"))
	require.NoError(t, err)
	require.NoError(t, (&streams.Copies{NC: before, Plan: func() streams.Plan { return plan }}).Once(t.Context()), "where no readers are")
	before.Close()
	require.NoError(t, s.Shutdown(context.Background()))

	o.Listen, o.Users = "127.0.0.1:0", []User{{Name: "reader", Password: "r", Role: RoleRead}} // whose accounts leave the streams where they were
	s, err = Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	own, err := streams.Connect(streams.ConnectOptions{Server: s, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(own.Close)
	js, err = streams.JetStream(own)
	require.NoError(t, err)
	put := func(key, value string) {
		_, err := js.Publish(t.Context(), "$KV.things."+key, []byte(value))
		require.NoError(t, err)
	}
	c := &streams.Copies{NC: own, Plan: func() streams.Plan { return plan }}
	require.NoError(t, c.Once(t.Context()))

	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("reader", "r"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	rjs, err := jetstream.New(nc)
	require.NoError(t, err)
	bucket, err := rjs.KeyValue(t.Context(), "things")
	require.NoError(t, err)
	watcher, err := bucket.WatchAll(t.Context())
	require.NoError(t, err)
	next := func() string {
		for {
			select {
			case e := <-watcher.Updates():
				if e != nil {
					return e.Key() + "=" + string(e.Value())
				}
			case <-time.After(20 * time.Second):
				return "nothing"
			}
		}
	}
	require.Equal(t, "default.a=1", next())
	theirs, err := jetstream.NewWithAPIPrefix(own, streams.ReadersAPI)
	require.NoError(t, err)
	_, err = theirs.CreateStream(t.Context(), jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{"theirs"}})
	require.NoError(t, err)
	held, err := s.Held()
	require.NoError(t, err)
	require.NotContains(t, held, "THEIRS", "what readers have is not what the server holds")
	require.Contains(t, held, "KV_things")
	require.NoError(t, theirs.DeleteStream(t.Context(), "THEIRS"))
	for n := range 300 {
		put("default.a", fmt.Sprint(n))
		require.Equal(t, fmt.Sprintf("default.a=%d", n), next())
	}

	require.NoError(t, s.Restart())
	require.Eventually(t, func() bool { return own.IsConnected() && nc.IsConnected() }, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := js.Publish(t.Context(), "$KV.things.default.b", []byte("again"))
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		e, err := bucket.Get(t.Context(), "default.b")
		return err == nil && string(e.Value()) == "again"
	}, 30*time.Second, 50*time.Millisecond)

	readers, err := jetstream.NewWithAPIPrefix(own, streams.ReadersAPI)
	require.NoError(t, err)
	for _, want := range []int64{2 << 20, 4 << 20} { // the store is the control plane's
		events, err := readers.Stream(t.Context(), streams.EventStream)
		require.NoError(t, err)
		require.Equal(t, want, events.CachedInfo().Config.MaxBytes)
		config := plan.Configs()[slices.IndexFunc(plan.Configs(), func(c jetstream.StreamConfig) bool { return c.Name == streams.EventStream })]
		config.MaxBytes = 16 << 20
		_, err = js.UpdateStream(t.Context(), config)
		require.NoError(t, err)
		require.NoError(t, c.Once(t.Context()))
	}

	// What is broken is made again.
	for _, broken := range []func() error{
		func() error { return readers.DeleteStream(t.Context(), "KV_things") },
		func() error { return js.DeleteConsumer(t.Context(), "KV_things", streams.CopyConsumer) },
		func() error {
			s, err := readers.Stream(t.Context(), "KV_things")
			if err != nil {
				return err
			}
			return s.Purge(t.Context())
		},
	} {
		require.NoError(t, broken())
		require.NoError(t, c.Once(t.Context()))
		require.Eventually(t, func() bool {
			e, err := bucket.Get(t.Context(), "default.b")
			return err == nil && string(e.Value()) == "again"
		}, 30*time.Second, 50*time.Millisecond)
		require.Eventually(t, func() bool { // it has come to the end
			s, err := readers.Stream(t.Context(), "KV_things")
			return err == nil && s.CachedInfo().State.NumSubjects == 2
		}, 30*time.Second, 50*time.Millisecond)
	}
}

// In a cluster a reader is at one member, who answers it at another, and the copies have replicas like what they are of.
func TestUsersOfACluster(t *testing.T) {
	t.Parallel()
	members := threeMembers(t, func(o *Options) { o.Users = []User{{Name: "reader", Password: "r", Role: RoleRead}} })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	plan := streams.Plan{Replicas: 3, States: []string{"things"}}
	own, err := streams.Connect(streams.ConnectOptions{Server: members[0], Name: "test"})
	require.NoError(t, err)
	t.Cleanup(own.Close)
	js, err := streams.JetStream(own)
	require.NoError(t, err)
	_, err = streams.AwaitCluster(ctx, own, js, plan, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, err = own.Subscribe("instar.api.get.>", func(m *nats.Msg) { _ = own.Publish(streams.Inbox(m.Reply), []byte("answer")) })
	require.NoError(t, err)
	c := &streams.Copies{NC: own, Plan: func() streams.Plan { return plan }}
	require.Eventually(t, func() bool { return c.Once(ctx) == nil }, time.Minute, 100*time.Millisecond)

	nc, err := nats.Connect(members[2].ClientURL(), nats.UserInfo("reader", "r"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	require.Eventually(t, func() bool {
		m, err := nc.Request("instar.api.get.thing.default.a", nil, time.Second)
		return err == nil && string(m.Data) == "answer"
	}, time.Minute, 50*time.Millisecond)
	rjs, err := jetstream.New(nc)
	require.NoError(t, err)
	bucket, err := rjs.KeyValue(ctx, "things")
	require.NoError(t, err)
	seen := func(value string) {
		require.Eventually(t, func() bool {
			_, err := js.Publish(ctx, "$KV.things.default.a", []byte(value))
			return err == nil
		}, time.Minute, 100*time.Millisecond)
		require.Eventually(t, func() bool {
			e, err := bucket.Get(ctx, "default.a")
			return err == nil && string(e.Value()) == value
		}, time.Minute, 50*time.Millisecond)
	}
	seen("1")
	require.NoError(t, members[1].Shutdown(ctx))
	seen("2")
	require.NoError(t, c.Once(ctx))
	seen("3")
}
