package index

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/internal/feed"
	"github.com/bcc94042/instar/kv/kvtest"
)

func TestIndexFollowsItsBucket(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	ix := run(t, n, "things")
	require.Zero(t, ix.Len())

	n.Put(t, "things", "ns.a", `{"state":"new","version":1,"labels":{"team":"web"},"createdAt":"2025-01-02T03:04:05Z","updatedAt":"2025-01-02T03:04:06.5Z"}`)
	n.Put(t, "things", "ns.b", `{"state":`)
	rev := n.Put(t, "things", "ns.c", `{"state":"ready"}`)
	require.NoError(t, ix.Wait(t.Context(), rev))
	a, ok := ix.Get("ns.a")
	require.True(t, ok)
	require.Equal(t, Item{
		Key: "ns.a", State: "new", Version: 1, Revision: 1, Labels: map[string]string{"team": "web"},
		CreatedAt: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC), UpdatedAt: time.Date(2025, 1, 2, 3, 4, 6, 5e8, time.UTC),
	}, a)

	t.Run("CorruptValueIsKeptAndCounted", func(t *testing.T) {
		p := ix.List(Query{Problems: true})
		require.Len(t, p.Items, 1)
		b := p.Items[0]
		require.Equal(t, Item{Key: "ns.b", Revision: 2, UpdatedAt: b.UpdatedAt, Problem: "not a valid object: invalid JSON at byte 9"}, b)
		require.WithinDuration(t, time.Now(), b.UpdatedAt, time.Minute)
		require.Equal(t, 1, ix.Stats().Problems)
		require.Equal(t, map[string]int{"new": 1, "": 1, "ready": 1}, ix.Counts("ns"))
		rev := n.Put(t, "things", "ns.b", `{"state":"well"}`)
		require.NoError(t, ix.Wait(t.Context(), rev))
		require.Empty(t, ix.List(Query{Problems: true}).Items)
		require.Zero(t, ix.Stats().Problems)
	})
	t.Run("DeleteMarkerRemoves", func(t *testing.T) {
		s := ix.Subscribe(Filter{Key: "ns.c"}, 1)
		defer s.Close()
		rev := n.Remove(t, "things", "ns.c")
		require.Equal(t, fmt.Sprintf("ns.c@%d deleted", rev), spoken(<-s.C))
		require.NoError(t, ix.Wait(t.Context(), rev))
		_, ok := ix.Get("ns.c")
		require.False(t, ok)
	})
	t.Run("SubscriptionHasTheValue", func(t *testing.T) {
		s := ix.Subscribe(Filter{Namespace: "ns"}, 10)
		defer s.Close()
		rev := n.Put(t, "things", "ns.d", `{"state":"new"}`)
		require.Equal(t, fmt.Sprintf(`ns.d@%d {"state":"new"}`, rev), spoken(<-s.C))
	})
	lag := ix.Lag()
	require.Equal(t, Lag{Known: ix.Revision(), Applied: ix.Revision(), Quiet: lag.Quiet}, lag)
	require.Less(t, lag.Quiet, 10*time.Second)
	require.EqualValues(t, 1, ix.Stats().Builds)
}

// A last message that was removed without a marker must not keep a waiter waiting.
func TestIndexLacksWhatWasNeverThere(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	require.False(t, New(n.JS, "things", describe, Options{}).Lacks("ns.a"), "it has seen nothing yet")
	ix := run(t, n, "things")
	require.True(t, ix.Lacks("ns.a"))
	require.NoError(t, ix.Wait(t.Context(), n.Put(t, "things", "ns.a", `{"state":"new"}`)))
	require.False(t, ix.Lacks("ns.a"))
	require.NoError(t, ix.Wait(t.Context(), n.Remove(t, "things", "ns.a")))
	require.False(t, ix.Lacks("ns.a"), "its marker is there")
	require.False(t, run(t, n, "things").Lacks("ns.a"), "also for who comes later")
	require.NoError(t, ix.Wait(t.Context(), n.Put(t, "things", "ns.a", `{"state":"new"}`)))
	require.False(t, ix.Lacks("ns.a"))
	require.True(t, ix.Lacks("ns.b"))
}

func TestIndexReachesRevisionsThatAreGone(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	ix := run(t, n, "things")
	n.NC.Flush()
	rev := n.Put(t, "things", "ns.a", `{"state":"new"}`)
	s, err := n.JS.Stream(t.Context(), "KV_things")
	require.NoError(t, err)
	require.NoError(t, s.Purge(t.Context()))
	require.NoError(t, ix.Wait(t.Context(), rev))

	late := run(t, n, "things")
	require.Zero(t, late.Len())
	require.NoError(t, late.Wait(t.Context(), rev))
}

func TestIndexResumesAfterServerRestart(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	for i := range 10 {
		n.Put(t, "things", fmt.Sprintf("ns.k%d", i), `{"state":"old"}`)
	}
	ix := run(t, n, "things")
	s := ix.Subscribe(Filter{}, 100)
	defer s.Close()
	n.Stop()
	n.Restart(t)
	n.PutOnceBack(t, "things", "ns.k3", `{"state":"new"}`)
	rev := n.Remove(t, "things", "ns.k4")
	require.NoError(t, ix.Wait(t.Context(), rev))
	require.Equal(t, 9, ix.Len())
	require.Equal(t, map[string]int{"old": 8, "new": 1}, ix.Counts(""))
	st := ix.Stats()
	require.EqualValues(t, 1, st.Builds)
	require.EqualValues(t, 12, st.Applied) // resumed: nothing came twice
	require.NotZero(t, st.Breaks)
	require.False(t, s.Lost())
	require.Equal(t, []string{`ns.k3@11 {"state":"new"}`, "ns.k4@12 deleted"}, s.waiting())
}

func TestIndexIsBuiltAnewWhenTheStreamIsAnother(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	for i := range 10 {
		n.Put(t, "things", fmt.Sprintf("ns.k%d", i), `{"state":"old"}`)
	}
	ix := run(t, n, "things")
	s := ix.Subscribe(Filter{}, 100)
	defer s.Close()
	require.NoError(t, n.JS.DeleteStream(t.Context(), "KV_things"))
	n.Create(t, "things")
	n.Put(t, "things", "ns.other", `{"state":"new"}`)
	require.NoError(t, n.NC.ForceReconnect())
	item, err := ix.WaitFor(t.Context(), "ns.other", func(Item) bool { return true })
	require.NoError(t, err)
	require.EqualValues(t, 1, item.Revision)
	require.Equal(t, 1, ix.Len())
	require.EqualValues(t, 1, ix.Revision())
	require.EqualValues(t, 2, ix.Stats().Builds)
	require.Equal(t, []string{"closed"}, s.waiting())
	require.True(t, s.Lost())
}

// Purged without markers while nobody watched, and nothing left of what was seen.
func TestIndexForgetsWhatWasPurgedMeanwhile(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	for i := range 10 {
		n.Put(t, "things", fmt.Sprintf("ns.k%d", i), `{"state":"old"}`)
	}
	ix := run(t, n, "things")
	s, err := n.JS.Stream(t.Context(), "KV_things")
	require.NoError(t, err)
	require.NoError(t, s.Purge(t.Context()))
	require.Equal(t, 10, ix.Len())
	require.NoError(t, n.NC.ForceReconnect())
	require.Eventually(t, func() bool { return ix.Len() == 0 }, 10*time.Second, 5*time.Millisecond)
}

func TestIndexWaitsForItsBucket(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	ix := New(n.JS, "things", describe, Options{})
	start(t, ix)
	require.Eventually(t, func() bool { return ix.Stats().Breaks > 0 }, 10*time.Second, time.Millisecond)
	n.Create(t, "things")
	<-ix.Ready()
}

func TestIndexOfAThousandUnderWrites(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	fill(t, n, "things", 1000)
	ix := run(t, n, "things")
	require.Equal(t, 1000, ix.Len())
	require.Equal(t, map[string]int{"active.healthy": 250, "active.unhealthy": 250, "starting": 250, "stopped": 250}, ix.Counts("default"))
	fill(t, n, "things", 1000)
	require.NoError(t, ix.Wait(t.Context(), 2000))
	require.Len(t, ix.List(Query{States: []string{"starting"}, Limit: 1000}).Items, 250)
	p := ix.List(Query{Labels: []Selector{{Label: "team", Op: Equal, Values: []string{"t42"}}}})
	require.Len(t, p.Items, 10)
	require.Equal(t, "default.k198", p.Items[0].Key)
	require.EqualValues(t, 2000, p.Revision)
}

func TestARowHasOneCopyOfItsKey(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	described := map[string]*byte{}
	ix := New(n.JS, "things", func(key string, value []byte) (Meta, error) {
		before := described[key]
		described[key] = unsafe.StringData(key)
		if before != nil && before != described[key] {
			return Meta{}, errors.New("another copy")
		}
		return DescribeJSON(value)
	}, Options{})
	start(t, ix)
	<-ix.Ready()
	for range 3 {
		n.Put(t, "things", "ns.a", `{"state":"new"}`)
		n.Put(t, "things", "ns.c", `{"state":"new"}`)
		last := n.Put(t, "things", "ns.c", `{"state":"newer"}`)
		require.NoError(t, ix.Wait(t.Context(), last))
		require.Zero(t, ix.Stats().Undescribed)
	}
	a, _ := ix.Get("ns.a")
	require.Same(t, described["ns.a"], unsafe.StringData(a.Key))
}

func TestARowHasOneCopyOfAKeyThatComesTwiceInABatch(t *testing.T) {
	t.Parallel()
	ix := New(nil, "things", describe, Options{})
	key := []byte("ns.a")
	ops := ix.describeAll(nil, ix.table, []feed.Update{{Key: string(key), Value: []byte(`{"state":"new"}`)}, {Key: string(key), Value: []byte(`{"state":"newer"}`)}})
	require.Same(t, unsafe.StringData(ops[0].Key), unsafe.StringData(ops[1].Key))
	require.Empty(t, ix.table.fresh, "they are not kept for keys that get no row")
}

func TestItemsCarryWhatDescribeKeeps(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	ix := New(n.JS, "things", func(_ string, value []byte) (Meta, error) {
		m, err := DescribeJSON(value)
		if m.State == "kept" {
			m.Value = string(value)
		}
		return m, err
	}, Options{})
	start(t, ix)
	<-ix.Ready()
	s := ix.Subscribe(Filter{}, 10)
	defer s.Close()
	require.NoError(t, ix.Wait(t.Context(), n.Put(t, "things", "ns.a", `{"state":"kept"}`)))
	require.Equal(t, `{"state":"kept"}`, (<-s.C).Item.Value)
	a, _ := ix.Get("ns.a")
	require.Equal(t, `{"state":"kept"}`, a.Value)
	require.NoError(t, ix.Wait(t.Context(), n.Put(t, "things", "ns.a", `{"state":"other"}`)))
	a, _ = ix.Get("ns.a")
	require.Nil(t, a.Value)
	require.NoError(t, ix.Wait(t.Context(), n.Put(t, "things", "ns.a", `{"state":"kept"}`)))
	require.NoError(t, ix.Wait(t.Context(), n.Remove(t, "things", "ns.a")))
	require.Empty(t, ix.table.values)
}

// How long ago something ended is told by the clock that has stamped it.
func TestAClockThatIsAheadForgetsNothingTooSoon(t *testing.T) {
	t.Parallel()
	const endedFor = 24 * time.Hour
	ix := &Index{opts: Options{EndedFor: endedFor}}
	server := time.Now().Add(-100 * 24 * time.Hour)
	require.Less(t, ix.horizon([]op{{Update: feed.Update{At: server.UnixNano()}}, {}}), server.Add(-endedFor+time.Minute).UnixNano())
	require.GreaterOrEqual(t, ix.horizon(nil), server.Add(-endedFor).UnixNano(), "time goes on")
	behind := time.Now().Add(100 * 24 * time.Hour)
	require.LessOrEqual(t, ix.horizon([]op{{Update: feed.Update{At: behind.UnixNano()}}}), time.Now().Add(-endedFor).UnixNano(), "one that is behind forgets later")
}

// What ended is forgotten after its time, also when the index is built anew. That its key was there is not, until it is there
// again.
func TestIndexForgetsWhatEnded(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	follow := func(endedFor time.Duration) *Index {
		ix := New(n.JS, "things", describe, Options{Ended: func(state string) bool { return state == "stopped" }, EndedFor: endedFor})
		start(t, ix)
		<-ix.Ready()
		return ix
	}
	for i := range 4 {
		n.Put(t, "things", fmt.Sprintf("ns.k%d", i), `{"state":"stopped","labels":{"a":"b"}}`)
	}
	n.Put(t, "things", "ns.lives", `{"state":"ready"}`)
	patient := follow(time.Hour)
	ix := follow(10 * time.Millisecond)
	forgotten := func(ix *Index) {
		t.Helper()
		require.Eventually(t, func() bool { return ix.Len() == 1 }, 10*time.Second, time.Millisecond)
		_, ok := ix.Get("ns.k1")
		require.False(t, ok)
		require.Equal(t, map[string]int{"ready": 1}, ix.Counts(""))
		require.Len(t, ix.List(Query{Namespace: "ns"}).Items, 1)
		require.Empty(t, ix.List(Query{States: []string{"stopped"}}).Items)
		require.Empty(t, ix.table.combos, "nor do labels stay")
		require.False(t, ix.Lacks("ns.k1"))
		require.True(t, ix.Lacks("ns.new"))
	}
	forgotten(ix)
	forgotten(follow(10 * time.Millisecond))
	require.Equal(t, 5, patient.Len())

	s := ix.Subscribe(Filter{Key: "ns.k1"}, 1)
	defer s.Close()
	rev := n.Put(t, "things", "ns.k1", `{"state":"ready"}`)
	require.Equal(t, rev, (<-s.C).Item.Revision, "it is there again")
	require.NoError(t, ix.Wait(t.Context(), rev))
	require.Equal(t, 2, ix.Len())
	require.False(t, ix.Lacks("ns.k1"))
	n.Put(t, "things", "ns.k1", `{"state":"stopped"}`)
	forgotten(ix)
	require.Equal(t, 5, patient.Len())
}

// Many that end one after the other take the memory of few.
func TestTheMemoryOfWhatEndedIsUsedAgain(t *testing.T) {
	t.Parallel()
	tb := newTable()
	tb.terminal = func(state string) bool { return state == "stopped" }
	tb.seal()
	const n = 100_000
	for i := range n {
		key := fmt.Sprintf("ns.k%d", i)
		for life, state := range []string{"ready", "stopped"} {
			rev := int64(2*i + life + 1)
			tb.apply(&op{Update: feed.Update{Key: tb.key(key), Revision: uint64(rev), At: rev}, meta: Meta{State: state, Labels: map[string]string{"id": key}}})
			clear(tb.fresh)
		}
		tb.forget(int64(2*i - 100))
	}
	require.Less(t, len(tb.rows), 100)
	require.Less(t, len(tb.spare), 2*rowsAtOnce)
	require.Less(t, cap(tb.ending), 1000)
	require.Less(t, len(tb.labels["id"]), 100)
	require.Len(t, tb.past, n-len(tb.rows))
}

// An index that catches up after a break is as old as it was before, although the server speaks to it all the while.
func TestIndexThatCatchesUpIsQuiet(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	begun, hold := make(chan string, 10), map[string]chan struct{}{"first": make(chan struct{}), "ns.n500": make(chan struct{})}
	ix := New(n.JS, "things", func(key string, value []byte) (Meta, error) {
		m, err := describe(key, value)
		if gate := hold[cmp.Or(m.State, key)]; gate != nil {
			begun <- key
			<-gate
		}
		return m, err
	}, Options{})
	start(t, ix)
	open := map[string]func(){}
	for key, gate := range hold {
		open[key] = sync.OnceFunc(func() { close(gate) })
		t.Cleanup(open[key])
	}
	<-ix.Ready()
	n.Put(t, "things", "ns.a", `{"state":"first"}`)
	<-begun
	require.NoError(t, n.NC.ForceReconnect())
	require.Eventually(t, func() bool { return n.NC.Stats().Reconnects > 0 && n.NC.IsConnected() }, 10*time.Second, time.Millisecond)
	var last uint64
	for i := range 600 {
		last = n.Put(t, "things", fmt.Sprintf("ns.n%d", i), `{}`)
	}
	broke := time.Now()
	open["first"]()
	require.Equal(t, "ns.n500", <-begun)
	require.GreaterOrEqual(t, ix.Lag().Quiet, time.Since(broke), "hundreds came since")
	open["ns.n500"]()
	require.NoError(t, ix.Wait(t.Context(), last))
	require.Eventually(t, func() bool { return ix.Lag().Quiet < time.Second }, 10*time.Second, time.Millisecond)
}
