package streams

import (
	"fmt"
	"testing"
	"time"

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

// The server itself takes more than the limit: at one of its own it would not even take what makes room.
func TestAStoreBeyondItsLimitTakesPurges(t *testing.T) {
	t.Parallel()
	g := bare(t, ServerOptions{Profile: OS, MaxStore: 1 << 20})
	fill, err := g.js.CreateStream(g.ctx, jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}})
	require.NoError(t, err)
	for range 8 {
		_, err = g.js.Publish(g.ctx, "fill", make([]byte, 200<<10))
		require.NoError(t, err)
	}
	room, err := g.server.Store()
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, room.Limit)
	require.True(t, room.Full())
	require.NoError(t, fill.Purge(g.ctx))
	room, err = g.server.Store()
	require.NoError(t, err)
	require.False(t, room.Full())
}

func TestOutOfRoom(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]bool{10023: true, 10002: true, 10047: true, 10071: false} {
		err := fmt.Errorf("x: %w", &RefusedError{Code: code})
		require.Equal(t, want, OutOfRoom(err))
		require.False(t, Permanent(err))
	}
	require.False(t, OutOfRoom(nil))
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
	const mib = 1 << 20
	ensure(0, 0, 100*mib)
	has(50*mib, 5*mib)
	ensure(0, 0, 110*mib)
	has(50*mib, 5*mib) // no small changes
	ensure(0, 0, 1000*mib)
	has(500*mib, 50*mib)
	ensure(0, 0, 10*mib)
	has(5*mib, leastBound)
	for range 12 {
		_, err := g.js.Publish(g.ctx, g.names.Event("thing", "default.a", "made"), make([]byte, mib/2))
		require.NoError(t, err)
	}
	held := int64(g.info(EventStream).State.Bytes)
	require.Greater(t, held, int64(3*mib))
	ensure(0, 0, mib)
	has(max(held, 5*mib), leastBound) // nothing of what is there goes because somebody else has filled the disk
	ensure(0, 0, 100*mib)
	has(50*mib, 5*mib)
	p := testPlan(g.names)
	p.Store, p.Replicas = 1000*mib, 3
	_, err := Ensure(g.ctx, g.js, p)
	require.NoError(t, err)
	has(50*mib, 5*mib) // members have stores of their own
	by := g.info(EventStream).Config
	by.MaxBytes = 20 * mib
	_, err = g.js.UpdateStream(g.ctx, by)
	require.NoError(t, err)
	ensure(0, 0, 1000*mib)
	has(20*mib, 50*mib) // it was changed by hand
	ensure(4<<10, 1<<20, 100*mib)
	has(4<<10, 1<<20)
	require.Less(t, g.info(EventStream).State.Msgs, uint64(5), "the oldest go")
	ensure(0, 0, 1000*mib)
	has(4<<10, 1<<20) // it was set
	ensure(0, 0, 0)
	has(4<<10, 1<<20)
}

func (g *ground) info(stream string) *jetstream.StreamInfo {
	g.t.Helper()
	s, err := g.js.Stream(g.ctx, stream)
	require.NoError(g.t, err)
	return s.CachedInfo()
}
