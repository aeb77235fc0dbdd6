package embedded

import (
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

// Without a limit the disk is the limit: by what is stored it does not become less, and what others have filled and freed again is there, whenever the
// server was started.
func TestTheLimitOfTheStore(t *testing.T) {
	t.Parallel()
	o := Options{Profile: OS, Dir: t.TempDir()}
	s, err := Start(o)
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
	g := run(t, o)
	room, err = g.Server.Store()
	require.NoError(t, err)
	require.True(t, room.Full(), "nothing is stored, and nothing can be")
	_, err = g.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}})
	require.NoError(t, err)
	for range 16 {
		_, err = g.JS.Publish(t.Context(), "fill", make([]byte, mib/2))
		require.NoError(t, err)
	}
	has := func(free int64, full bool) {
		t.Helper()
		left.Store(free)
		room, err := g.Server.Store()
		require.NoError(t, err)
		require.Greater(t, room.Used, int64(8*mib))
		require.Equal(t, streams.Room{Used: room.Used, Limit: max(room.Used+free-8*mib, 0), Disk: true}, room, "but for a fiftieth of the disk")
		require.Equal(t, full, room.Full())
	}
	has(0, true)
	has(380*mib, false)
	left.Store(9 * mib)
	require.NoError(t, g.Server.Restart())
	require.Eventually(t, func() bool { room, err = g.Server.Store(); return err == nil && room.Used > 8*mib }, 10*time.Second, 10*time.Millisecond)
	has(9*mib, false)
	has(8*mib, true)
	has(380*mib, false)
	g.Server.o.MaxStore = 100 * mib // which is more than there may be
	has(50*mib, false)
	has(8*mib, true)
	left.Store(380 * mib)
	room, err = g.Server.Store()
	require.NoError(t, err)
	require.Equal(t, streams.Room{Used: room.Used, Limit: 98 * mib}, room)
	require.False(t, streams.Room{Used: 1 << 40, Limit: -1}.Full(), "without a limit")
	require.EqualValues(t, 64*mib, streams.Reserve(10000*mib))
}

// The server itself takes more than the limit: at one of its own it would not even take what makes room.
func TestAStoreBeyondItsLimitTakesPurges(t *testing.T) {
	t.Parallel()
	var waits atomic.Bool
	g := run(t, Options{Profile: OS, MaxStore: 1 << 20, stacks: stuckWhen(t, &waits)})
	fill, err := g.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}})
	require.NoError(t, err)
	for range 8 {
		_, err = g.JS.Publish(t.Context(), "fill", make([]byte, 200<<10))
		require.NoError(t, err)
	}
	room, err := g.Server.Store()
	require.NoError(t, err)
	require.EqualValues(t, 1<<20-1<<20/50, room.Limit)
	require.True(t, room.Full())
	require.NoError(t, fill.Purge(t.Context()))
	room, err = g.Server.Store()
	require.NoError(t, err)
	require.False(t, room.Full())
	require.NoError(t, g.Server.running().DisableJetStream())
	_, err = g.Server.Store()
	require.ErrorContains(t, err, "switched off", "as a member does whose disk is full: it does not know what it has")
	waits.Store(true)
	_, err = g.Server.Store()
	require.ErrorIs(t, err, ErrStuck, "another stream's failed write has switched it off")
}

// A server that does not answer for a while is slow, whatever its disk has, and nothing is wrong when it answers again.
func TestASlowStoreIsNotStuck(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	var left atomic.Int64
	left.Store(380 * mib)
	g := run(t, Options{
		Profile: OS, patience: 50 * time.Millisecond,
		space: func(string) (int64, int64, error) { return left.Load(), 400 * mib, nil },
	})
	_, err := g.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}})
	require.NoError(t, err)
	_, err = g.JS.Publish(t.Context(), "fill", make([]byte, mib))
	require.NoError(t, err)
	where, err := provenStores()
	require.NoError(t, err)
	list := where.of(g.Server.running())
	require.Len(t, list, 1)
	held := (*sync.RWMutex)(unsafe.Add(list[0].pointer(), where.mu))
	good, err := g.Server.Store()
	require.NoError(t, err)
	held.Lock()
	release := sync.OnceFunc(held.Unlock)
	t.Cleanup(release) // or the server does not end
	for _, free := range []int64{380, 0, 380} {
		left.Store(free * mib)
		_, err = g.Server.Store()
		require.ErrorIs(t, err, ErrSlow)
	}
	release()
	room, err := g.Server.Store()
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
	for _, innocent := range []string{"flushLoop", "_writeFullState"} { // they wait for somebody else
		require.False(t, waitsForItself(strings.ReplaceAll(string(stacks), "server.(*fileStore).PurgeEx", "server.(*msgBlock)."+innocent)))
	}
	s := &Server{o: Options{space: func(string) (int64, int64, error) { return left, 400 << 20, nil }}, used: 7, stuck: true}
	room, err := s.Store()
	require.NoError(t, err)
	require.Equal(t, streams.Room{Used: 7, Disk: true}, room)
	require.True(t, room.Full())
	left = 380 << 20
	_, err = s.Store()
	require.ErrorIs(t, err, ErrStuck)
}

// A member says farewell to its cluster before it ends, for which it asks its streams: one that waits for itself does not come to that.
func TestAStuckMemberIsTold(t *testing.T) {
	t.Parallel()
	var waits atomic.Bool
	m := threeMembers(t, func(o *Options) {
		o.patience = 200 * time.Millisecond
		o.space = func(string) (int64, int64, error) { return 380 << 20, 400 << 20, nil }
		o.stacks = stuckWhen(t, &waits)
	})[0]
	nc, js := connected(t, m)
	t.Cleanup(nc.Close)
	require.Eventually(t, func() bool {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}, Replicas: 3})
		return err == nil
	}, 30*time.Second, 100*time.Millisecond)
	where, err := provenStores()
	require.NoError(t, err)
	srv := m.running()
	var held []*sync.RWMutex
	for _, store := range where.of(srv) {
		held = append(held, (*sync.RWMutex)(unsafe.Add(store.pointer(), where.mu)))
		held[len(held)-1].Lock()
	}
	waits.Store(true)
	err = m.Restart()
	waits.Store(false)
	for _, mu := range held {
		mu.Unlock()
	}
	srv.WaitForShutdown()
	require.ErrorIs(t, err, ErrStuck)
}

// stuckWhen are the goroutines of a server that waits for itself, from when that is so.
func stuckWhen(t *testing.T, waits *atomic.Bool) func() string {
	stacks, err := os.ReadFile("testdata/goroutines-stuck.txt")
	require.NoError(t, err)
	return func() string {
		if waits.Load() {
			return string(stacks)
		}
		return ""
	}
}

// What a stream holds nothing of is known without asking it, and never of what it holds; of a server that does not run nothing is known.
func TestWhatAStreamLacksIsKnown(t *testing.T) {
	t.Parallel()
	for _, profile := range []Profile{Interval, Fsync} {
		g := run(t, Options{Profile: profile})
		things(t, g.JS)
		put := func(key string) {
			_, err := g.JS.Publish(t.Context(), "$KV.things."+key, []byte("x"))
			require.NoError(t, err)
		}
		require.True(t, g.Server.Lacks("KV_things", "$KV.things.a"))
		put("a")
		require.False(t, g.Server.Lacks("KV_things", "$KV.things.a"))
		require.True(t, g.Server.Lacks("KV_things", "$KV.things.b"))
		require.False(t, g.Server.Lacks("KV_none", "$KV.none.a"), "of which nobody knows")
		require.NoError(t, g.Server.Restart())
		require.False(t, g.Server.Lacks("KV_things", "$KV.things.a"))
		require.Eventually(t, func() bool { return g.Server.Lacks("KV_things", "$KV.things.b") }, 20*time.Second, time.Millisecond)
		require.NoError(t, g.Server.stop())
		require.False(t, g.Server.Lacks("KV_things", "$KV.things.b"), "there is no server")
		require.NoError(t, g.Server.start())
	}
	require.False(t, (&Server{}).Lacks("KV_things", "$KV.things.b"))
}
