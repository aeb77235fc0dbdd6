package backup

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// holds waits until a stream has exactly so many messages.
func holds(t *testing.T, js jetstream.JetStream, stream string, messages uint64) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		st, err := js.Stream(t.Context(), stream)
		require.NoError(c, err)
		require.Equal(c, messages, st.CachedInfo().State.Msgs, stream)
	}, 30*time.Second, 20*time.Millisecond)
}

// Streams that source or mirror others go on behind what they have. Those that cannot are named, and so are streams in memory, which end with their server.
func TestStreamsThatFollowOthers(t *testing.T) {
	t.Parallel()
	from := installed(t)
	_, err := from.Restore(t.Context(), file(t, services(t, 2, 1, 0)...))
	require.NoError(t, err)
	source := func(names ...string) (all []*jetstream.StreamSource) {
		for _, name := range names {
			all = append(all, &jetstream.StreamSource{Name: name})
		}
		return all
	}
	for _, c := range []jetstream.StreamConfig{
		{Name: "ORD", Subjects: []string{"ord"}},
		{Name: "SRC", Sources: source("ORD")},
		{Name: "ALL", Sources: source("SRC")},
		{Name: "MIR", Mirror: &jetstream.StreamSource{Name: "ORD"}},
		{Name: "MEM", Subjects: []string{"mem"}, Storage: jetstream.MemoryStorage},
		{Name: "WORK", Retention: jetstream.WorkQueuePolicy, Sources: source("ORD")},
		{Name: "TOLD", Sources: source("EVENTS")},
	} {
		_, err := from.JS.CreateStream(t.Context(), c)
		require.NoError(t, err)
	}
	for range 20 {
		_, err := from.JS.Publish(t.Context(), "ord", []byte("x"))
		require.NoError(t, err)
	}
	_, err = from.JS.Publish(t.Context(), "mem", nil)
	require.NoError(t, err)
	for _, name := range []string{"SRC", "ALL", "MIR", "WORK"} {
		holds(t, from.JS, name, 20)
	}
	holds(t, from.JS, "TOLD", from.held(t, "EVENTS").Msgs)
	from.Others = []string{"ALL", "GONE", "MEM", "MIR", "ORD", "SRC", "TOLD", "WORK"}
	var copied bytes.Buffer
	_, err = from.Write(t.Context(), &copied)
	require.NoError(t, err)

	to, dir := installed(t), t.TempDir()
	start := func() (*embedded.Server, jetstream.JetStream) {
		srv, err := embedded.Start(embedded.Options{Dir: dir, Profile: embedded.OS, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		to.NC, err = streams.Connect(streams.ConnectOptions{Server: srv, Name: "test"})
		require.NoError(t, err)
		t.Cleanup(to.NC.Close)
		to.JS, err = streams.JetStream(to.NC)
		require.NoError(t, err)
		return srv, to.JS
	}
	srv, _ := start()
	to.Shared = false
	to.Appender, err = publish.NewAppender(to.NC, publish.AppenderOptions{})
	require.NoError(t, err)
	t.Cleanup(to.Appender.Close)
	done, err := to.Restore(t.Context(), &copied)
	require.NoError(t, err)
	again := map[string][]string{}
	for _, o := range done.End.Others {
		require.Equal(t, o.Stream == "MEM", o.Memory, o.Stream)
		if len(o.Again) > 0 {
			again[o.Stream] = o.Again
		}
	}
	require.Equal(t, map[string][]string{"WORK": {"ORD"}, "TOLD": {"EVENTS"}}, again)
	_, err = to.JS.Stream(t.Context(), "MEM")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)

	to.NC.Close()
	require.NoError(t, srv.Shutdown(context.Background()))
	srv, js := start()
	t.Cleanup(func() { _ = srv.Shutdown(context.Background()) })
	_, err = js.Publish(t.Context(), "ord", []byte("new"))
	require.NoError(t, err)
	for _, name := range []string{"ORD", "SRC", "ALL", "MIR"} {
		st, err := js.Stream(t.Context(), name)
		require.NoError(t, err)
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			last, err := st.GetLastMsgForSubject(t.Context(), "ord")
			require.NoError(c, err)
			require.Equal(c, "new", string(last.Data), name)
		}, 30*time.Second, 20*time.Millisecond)
		holds(t, js, name, 21)
	}
}
