package streams

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Without a limit the disk is the limit: by what is stored it does not become less, and what others have filled and freed again is there, whenever the
// server was started.
func TestTheLimitOfTheStore(t *testing.T) {
	t.Parallel()
	o := ServerOptions{Profile: OS, Dir: t.TempDir()}
	s, err := StartServer(o)
	require.NoError(t, err)
	free, _, err := DiskSpace(o.Dir)
	require.NoError(t, err)
	room, err := s.Store()
	require.NoError(t, err)
	require.InDelta(t, free, room.Limit, 1<<30) // others use the disk, too
	require.NoError(t, s.Shutdown(t.Context()))

	const mib = 1 << 20
	var left atomic.Int64 // of a disk that was full at the start
	o.space = func(string) (int64, int64, error) { return left.Load(), 400 * mib, nil }
	g := bare(t, o)
	room, err = g.server.Store()
	require.NoError(t, err)
	require.True(t, room.Full(), "nothing is stored, and nothing can be")
	_, err = g.js.CreateStream(g.ctx, jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}})
	require.NoError(t, err)
	for range 16 {
		_, err = g.js.Publish(g.ctx, "fill", make([]byte, mib/2))
		require.NoError(t, err)
	}
	has := func(free int64, full bool) {
		t.Helper()
		left.Store(free)
		room, err := g.server.Store()
		require.NoError(t, err)
		require.Greater(t, room.Used, int64(8*mib))
		require.Equal(t, Room{Used: room.Used, Limit: max(room.Used+free-8*mib, 0), Disk: true}, room, "but for a fiftieth of the disk")
		require.Equal(t, full, room.Full())
	}
	has(0, true)
	has(380*mib, false)
	left.Store(9 * mib)
	require.NoError(t, g.server.Restart())
	require.Eventually(t, func() bool { room, err = g.server.Store(); return err == nil && room.Used > 8*mib }, 10*time.Second, 10*time.Millisecond)
	has(9*mib, false)
	has(8*mib, true)
	has(380*mib, false)
	g.server.o.MaxStore = 100 * mib // which is more than there may be
	has(50*mib, false)
	has(8*mib, true)
	left.Store(380 * mib)
	room, err = g.server.Store()
	require.NoError(t, err)
	require.Equal(t, Room{Used: room.Used, Limit: 98 * mib}, room)
	require.False(t, Room{Used: 1 << 40, Limit: -1}.Full(), "without a limit")
	require.EqualValues(t, 64*mib, reserve(10000*mib))
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
	require.EqualValues(t, 1<<20-1<<20/50, room.Limit)
	require.True(t, room.Full())
	require.NoError(t, fill.Purge(g.ctx))
	room, err = g.server.Store()
	require.NoError(t, err)
	require.False(t, room.Full())
	require.NoError(t, g.server.running().DisableJetStream())
	_, err = g.server.Store()
	require.ErrorContains(t, err, "switched off", "as a member does whose disk is full: it does not know what it has")
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

// Streams that only tell have a bound: one that is set, or a share of the store. A share only grows.
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
	for range 12 {
		_, err := g.js.Publish(g.ctx, g.names.Event("thing", "default.a", "made"), make([]byte, mib/2))
		require.NoError(t, err)
	}
	ensure(0, 0, 12*mib)
	has(50*mib, 5*mib) // no event has to go because somebody else has filled the disk, now or later
	ensure(0, 0, 200*mib)
	has(100*mib, 10*mib)
	p := testPlan(g.names)
	p.Store, p.Replicas = 1000*mib, 3
	_, err := Ensure(g.ctx, g.js, p)
	require.NoError(t, err)
	has(500*mib, 50*mib) // that of the member with the largest store
	unbound := g.info(EventStream).Config
	unbound.MaxBytes = -1
	_, err = g.js.UpdateStream(g.ctx, unbound)
	require.NoError(t, err)
	p.Store, p.Replicas = 10*mib, 1
	diffs, err := Ensure(g.ctx, g.js, p)
	require.NoError(t, err)
	require.Len(t, diffs, 1, "it has more than its share already")
	has(-1, 50*mib)
	ensure(0, 0, 1000*mib)
	has(500*mib, 50*mib)
	ensure(500*mib, 0, 1000*mib)
	ensure(0, 0, 2000*mib)
	has(500*mib, 100*mib) // it was set, to as much as its share
	by := g.info(EventStream).Config
	by.MaxBytes = 20 * mib
	_, err = g.js.UpdateStream(g.ctx, by)
	require.NoError(t, err)
	ensure(0, 0, 2000*mib)
	has(20*mib, 100*mib) // it was changed by hand
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

// A server that does not answer for a while is slow, whatever its disk has, and nothing is wrong when it answers again.
func TestASlowStoreIsNotStuck(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	var left atomic.Int64
	left.Store(380 * mib)
	g := bare(t, ServerOptions{
		Profile: OS, patience: 50 * time.Millisecond,
		space: func(string) (int64, int64, error) { return left.Load(), 400 * mib, nil },
	})
	_, err := g.js.CreateStream(g.ctx, jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}})
	require.NoError(t, err)
	_, err = g.js.Publish(g.ctx, "fill", make([]byte, mib))
	require.NoError(t, err)
	where, err := provenStores()
	require.NoError(t, err)
	list := where.of(g.server.running())
	require.Len(t, list, 1)
	held := (*sync.RWMutex)(unsafe.Add(list[0].pointer(), where.mu))
	good, err := g.server.Store()
	require.NoError(t, err)
	held.Lock()
	release := sync.OnceFunc(held.Unlock)
	t.Cleanup(release) // or the server does not end
	for _, free := range []int64{380, 0, 380} {
		left.Store(free * mib)
		_, err = g.server.Store()
		require.ErrorIs(t, err, ErrSlow)
	}
	release()
	room, err := g.server.Store()
	require.NoError(t, err)
	require.Equal(t, good, room)
}

// What is stuck is told once there is room for another start, and so long it is full; nobody asks it again. The goroutines are those of
// a server that was purged on a full disk, and of one whose disk stood still.
func TestAStuckStoreIsTold(t *testing.T) {
	t.Parallel()
	stacks, err := os.ReadFile("testdata/goroutines-stuck.txt")
	require.NoError(t, err)
	require.True(t, waitsForItself(string(stacks)))
	require.False(t, waitsForItself(goroutines()))
	var left int64
	s := &Server{o: ServerOptions{space: func(string) (int64, int64, error) { return left, 400 << 20, nil }}, used: 7, stuck: true}
	room, err := s.Store()
	require.NoError(t, err)
	require.Equal(t, Room{Used: 7, Disk: true}, room)
	require.True(t, room.Full())
	left = 380 << 20
	_, err = s.Store()
	require.ErrorIs(t, err, ErrStuck)
}
