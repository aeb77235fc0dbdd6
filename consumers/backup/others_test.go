package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math"
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

// Streams that sourced or mirrored others keep what they have, and receive no more, whatever happened to those. They are named, and so are streams in memory, which end
// with their server.
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
	follow := []jetstream.StreamConfig{
		{Name: "SRC", Sources: source("ORD"), MaxMsgs: math.MaxInt64},
		{Name: "ALL", Sources: source("SRC", "MEM")},
		{Name: "ord", Mirror: &jetstream.StreamSource{Name: "ORD"}, MirrorDirect: true}, // a subject of the other one
		{Name: "WORK", Subjects: []string{"work"}, Retention: jetstream.WorkQueuePolicy, Sources: source("ORD")},
		{Name: "TOLD", Sources: source("EVENTS")},
	}
	for _, c := range append([]jetstream.StreamConfig{
		{Name: "ORD", Subjects: []string{"ord"}, FirstSeq: 1790000000123456789},
		{Name: "MEM", Subjects: []string{"mem"}, Storage: jetstream.MemoryStorage},
	}, follow...) {
		_, err := from.JS.CreateStream(t.Context(), c)
		require.NoError(t, err)
	}
	for range 20 {
		_, err := from.JS.Publish(t.Context(), "ord", []byte("x"))
		require.NoError(t, err)
	}
	had := map[string]uint64{"SRC": 20, "ALL": 20, "ord": 20, "WORK": 20, "TOLD": from.held(t, "EVENTS").Msgs}
	for name, n := range had {
		holds(t, from.JS, name, n)
	}
	_, err = from.JS.Publish(t.Context(), "mem", nil)
	require.NoError(t, err)
	had["ALL"]++
	holds(t, from.JS, "ALL", had["ALL"])
	from.Others = []string{"ALL", "GONE", "MEM", "ORD", "SRC", "TOLD", "WORK", "ord"}
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
	_, checked, err := Check(bytes.NewReader(copied.Bytes()))
	require.NoError(t, err)
	done, err := to.Restore(t.Context(), &copied)
	require.NoError(t, err)
	for _, others := range [][]Other{checked.Others, done.End.Others} {
		origins := map[string][]string{}
		for _, o := range others {
			require.Equal(t, o.Stream == "MEM", o.Memory, o.Stream)
			if len(o.Origins) > 0 {
				origins[o.Stream] = o.Origins
			}
		}
		require.Equal(t, map[string][]string{"SRC": {"ORD"}, "ALL": {"SRC", "MEM"}, "ord": {"ORD"}, "WORK": {"ORD"}, "TOLD": {"EVENTS"}}, origins)
	}
	_, err = to.JS.Stream(t.Context(), "MEM")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)

	to.NC.Close()
	require.NoError(t, srv.Shutdown(context.Background()))
	srv, js := start()
	t.Cleanup(func() { _ = srv.Shutdown(context.Background()) })
	ack, err := js.Publish(t.Context(), "ord", []byte("new"))
	require.NoError(t, err)
	require.Equal(t, uint64(1790000000123456789+20), ack.Sequence)
	for _, c := range follow {
		st, err := js.Stream(t.Context(), c.Name)
		require.NoError(t, err)
		require.Empty(t, st.CachedInfo().Config.Sources)
		require.Nil(t, st.CachedInfo().Config.Mirror)
		holds(t, js, c.Name, had[c.Name])
	}
	_, err = js.Publish(t.Context(), "work", nil) // it is a stream like others
	require.NoError(t, err)
	holds(t, js, "WORK", 21)
}

// What a stream gets from elsewhere goes on, and what this program does not know stays.
func TestRestoredConfig(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{"name":"x","subjects":["b"],"new":9007199254740993}`:                                          `{"name":"A","new":9007199254740993,"num_replicas":3,"subjects":["b"]}`,
		`{"mirror":{"name":"B"},"mirror_direct":true,"republish":{}}`:                                   `{"name":"A","num_replicas":3,"subjects":["instar-restored.A"]}`,
		`{"mirror":{"name":"B","external":{"api":"$JS.x.API"}},"mirror_direct":true}`:                   `{"mirror":{"name":"B","external":{"api":"$JS.x.API"}},"mirror_direct":true,"name":"A","num_replicas":3}`,
		`{"sources":[{"name":"B"},{"name":"C","external":{"api":"x"},"opt_start_seq":7},{"name":"D"}]}`: `{"name":"A","num_replicas":3,"sources":[{"name":"C","external":{"api":"x"},"opt_start_seq":7}]}`,
	} {
		got, err := restored([]byte(given), "A", 3)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	for _, bad := range []string{``, `[]`, `null`, `{"sources":{}}`, `{"sources":[1]}`, `{"mirror":"x"}`} {
		_, err := restored([]byte(bad), "A", 3)
		require.Error(t, err, bad)
	}
}

// A backup without a bucket of the installation is none: it fails before its first byte. An empty bucket is what a machine leaves that could not be added.
func TestBucketsOfAMachineThatThisProcessDoesNotHave(t *testing.T) {
	t.Parallel()
	s := installed(t)
	more := s.Plan
	more.States, more.Views = append(more.States, "kettles"), append(more.Views, "kettles_times")
	_, err := streams.Ensure(t.Context(), s.JS, more)
	require.NoError(t, err)
	prices, err := s.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "prices"})
	require.NoError(t, err)
	_, err = prices.PutString(t.Context(), "a", "1")
	require.NoError(t, err)
	for shared, others := range map[bool][]string{true: nil, false: {"KV_prices", "THEIRS"}} {
		s.Shared = shared
		var copied bytes.Buffer
		_, err = s.Write(t.Context(), &copied)
		require.NoError(t, err)
		head, _, err := Check(&copied)
		require.NoError(t, err)
		require.Equal(t, others, head.Others)
	}
	_, err = s.JS.Publish(t.Context(), "$KV.kettles.default.k", []byte("{}"))
	require.NoError(t, err)
	for _, shared := range []bool{true, false} {
		s.Shared = shared
		var copied bytes.Buffer
		_, err = s.Write(t.Context(), &copied)
		require.ErrorIs(t, err, ErrUnknownBucket)
		require.ErrorContains(t, err, "backup: KV_kettles: this process has no machine")
		require.Zero(t, copied.Len())
	}
}

// Backups of before that have such a bucket as a stream of others are refused, whether or not this process has its machine.
func TestABucketOfTheInstallationIsNoneOfOthers(t *testing.T) {
	t.Parallel()
	section := func(name string) line {
		config, err := json.Marshal(jetstream.StreamConfig{Name: name, Subjects: []string{streams.BucketSubject(name[len("KV_"):], ">")}, Description: "Entities of a machine, by key"})
		require.NoError(t, err)
		return line{Section: &Section{Stream: name, Kind: KindSnapshot, Snapshot: &streams.SnapshotHead{Config: config, State: json.RawMessage("{}")}}}
	}
	for name, begun := range map[string]bool{"KV_services": false, "KV_kettles": true} {
		s := installed(t)
		s.Shared = false
		head := begins()
		head.Head.Others, head.Head.Schemas = []string{name}, nil
		done, err := s.Restore(t.Context(), file(t, head, section(name)))
		require.ErrorContains(t, err, "leave the bucket out by --without "+name)
		require.Equal(t, begun, done.Begun)
	}
	s := installed(t)
	s.Shared, s.Without = false, []string{"KV_kettles"}
	head := begins()
	head.Head.Others = s.Without
	_, err := s.Restore(t.Context(), file(t, head, section("KV_kettles")))
	require.NoError(t, err)
}
