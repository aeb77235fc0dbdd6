package streams

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// What may be stored does not become less by what is stored, over restarts.
func TestTheLimitOfTheStore(t *testing.T) {
	t.Parallel()
	o := ServerOptions{Profile: OS, Dir: t.TempDir()}
	g := bare(t, o)
	free, size, err := DiskSpace(o.Dir)
	require.NoError(t, err)
	room, err := g.server.Store()
	require.NoError(t, err)
	near := func(limit int64) { // others use the disk, too
		t.Helper()
		require.InDelta(t, free-Reserve(size), limit, 1<<30)
	}
	near(room.Limit)
	_, err = g.js.CreateStream(g.ctx, jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}})
	require.NoError(t, err)
	for range 64 {
		_, err = g.js.Publish(g.ctx, "fill", make([]byte, 512<<10))
		require.NoError(t, err)
	}
	require.NoError(t, g.server.Restart())
	require.Eventually(t, func() bool { room, err = g.server.Store(); return err == nil && room.Used > 32<<20 }, 10*time.Second, 10*time.Millisecond)
	near(room.Limit)
	require.False(t, room.Full())
	require.False(t, Room{Used: 1 << 40}.Full(), "without a limit")
	require.False(t, Room{Used: 97 << 20, Limit: 100 << 20}.Full())
	require.True(t, Room{Used: 98 << 20, Limit: 100 << 20}.Full())
	require.False(t, Room{Used: 9900 << 20, Limit: 10000 << 20}.Full(), "the reserve is 64 MiB at most")
}

func TestAnEmbeddedServerIsRefusedMore(t *testing.T) {
	t.Parallel()
	g := bare(t, ServerOptions{Profile: OS, MaxStore: 1 << 20})
	_, err := g.js.CreateStream(g.ctx, jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}})
	require.NoError(t, err)
	a := g.appender(AppenderOptions{})
	for err = nil; err == nil; {
		err = a.Append(g.ctx, []Write{{Stream: "FILL", Msg: &nats.Msg{Subject: "fill", Data: make([]byte, 200<<10)}}})[0].Err
	}
	require.True(t, OutOfRoom(err), "%v", err)
	require.False(t, Permanent(err))
	room, err := g.server.Store()
	require.NoError(t, err)
	require.True(t, room.Full())
}

// Streams that only tell have a bound: one that is set, or a share of the store. A share takes nothing away that is there.
func TestStreamsThatTellAreBounded(t *testing.T) {
	t.Parallel()
	g := setup(t, OS)
	names := []string{EventStream, DeadStream}
	has := func(events, dead int64) {
		t.Helper()
		require.Equal(t, []int64{events, dead}, []int64{g.configs()[names[0]].MaxBytes, g.configs()[names[1]].MaxBytes})
	}
	ensure := func(events, dead, store int64) {
		t.Helper()
		p := testPlan(g.names)
		p.Events, p.DeadLetters, p.Store = events, dead, store
		diffs, err := Ensure(g.ctx, g.js, p)
		require.NoError(t, err)
		require.Empty(t, diffs)
	}
	has(-1, -1)
	for range 10 {
		_, err := g.js.Publish(g.ctx, g.names.Event("thing", "default.a", "made"), make([]byte, 1<<10))
		require.NoError(t, err)
	}
	ensure(0, 0, 4<<10)
	has(int64(g.info(EventStream).State.Bytes), 204)
	ensure(0, 0, 1<<20)
	has(int64(g.info(EventStream).State.Bytes), 204)
	ensure(4<<10, 1<<20, 1<<20)
	has(4<<10, 1<<20)
	require.Less(t, g.info(EventStream).State.Msgs, uint64(5), "the oldest go")
	_, err := g.js.Publish(g.ctx, g.names.Event("thing", "default.a", "made"), make([]byte, 1<<10))
	require.NoError(t, err)
	require.EqualValues(t, 11, g.info(EventStream).State.LastSeq)
	ensure(0, 0, 0)
	has(4<<10, 1<<20)
}

func (g *ground) info(stream string) *jetstream.StreamInfo {
	g.t.Helper()
	s, err := g.js.Stream(g.ctx, stream)
	require.NoError(g.t, err)
	return s.CachedInfo()
}
