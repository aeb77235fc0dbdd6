package index

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/internal/feed"
)

func put(key, state string, rev uint64) op {
	return op{Update: feed.Update{Key: key, Revision: rev, Value: []byte(state)}, meta: Meta{State: state}}
}

func del(key string, rev uint64) op {
	return op{Update: feed.Update{Key: key, Revision: rev, Deleted: true}}
}

func spoken(c Change) string {
	if c.Deleted {
		return fmt.Sprintf("%s@%d deleted", c.Item.Key, c.Item.Revision)
	}
	return fmt.Sprintf("%s@%d %s", c.Item.Key, c.Item.Revision, c.Value)
}

// waiting are the changes that wait for the reader, seen by sending one more after them.
func (s *Subscription) waiting() (all []string) {
	s.offer(Change{Item: Item{Key: "last"}})
	for c := range s.C {
		if c.Item.Key == "last" {
			return all
		}
		all = append(all, spoken(c))
	}
	return append(all, "closed")
}

func TestSubscriptionFilters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filter Filter
		want   []string
	}{
		{Filter{}, []string{"a.web.1@4 failed", "a.x@5 deleted", "b.x@6 ready", "a.web.2@7 new", "b.x@8 stopped"}},
		{Filter{Key: "a.x"}, []string{"a.x@5 deleted"}},
		{Filter{Prefix: "a.web."}, []string{"a.web.1@4 failed", "a.web.2@7 new"}},
		{Filter{Prefix: "a"}, []string{"a.web.1@4 failed", "a.x@5 deleted", "a.web.2@7 new"}},
		{Filter{Namespace: "b"}, []string{"b.x@6 ready", "b.x@8 stopped"}},
		{Filter{Namespace: "a", Prefix: "b."}, nil},
		{Filter{States: []string{"ready"}}, []string{"a.web.1@4 failed", "a.x@5 deleted", "b.x@6 ready", "b.x@8 stopped"}},
		{Filter{Namespace: "a", States: []string{"failed", "new"}}, []string{"a.web.1@4 failed", "a.web.2@7 new"}},
	} {
		ix := memory()
		ix.feed(put("a.web.1", "ready", 1), put("a.x", "ready", 2), put("b.x", "stopped", 3))
		s := ix.Subscribe(c.filter, 2)
		require.EqualValues(t, 3, s.Revision)
		var got []string
		for _, o := range []op{put("a.web.1", "failed", 4), del("a.x", 5), put("b.x", "ready", 6), put("a.web.2", "new", 7), put("b.x", "stopped", 8), del("b.never", 9)} {
			ix.feed(o)
			got = append(got, s.waiting()...)
		}
		require.Equal(t, c.want, got, "%+v", c.filter)
		s.Close()
		s.Close()
		require.Zero(t, ix.Stats().Subscriptions)
		require.False(t, s.Lost())
		_, ok := <-s.C
		require.False(t, ok)
	}
}

func TestSlowSubscriberGetsTheNewestOfEachKey(t *testing.T) {
	t.Parallel()
	ix := memory()
	s := ix.Subscribe(Filter{}, 5)
	defer s.Close()
	for rev := uint64(1); rev <= 1000; rev++ {
		ix.feed(put(fmt.Sprintf("ns.k%d", rev%4), "s", rev))
	}
	got := s.waiting()
	if len(got) == 5 { // the pump had taken the first change out before it became newer ones
		got = got[1:]
	}
	require.ElementsMatch(t, []string{"ns.k1@997 s", "ns.k2@998 s", "ns.k3@999 s", "ns.k0@1000 s"}, got)
	require.False(t, s.Lost())
}

// Values that wait are bounded by their size: a newer one of a key takes the room of the older one, and one alone may be of any size.
func TestWhatWaitsIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	ix := memory()
	large := strings.Repeat("x", WaitingBytes/4)
	q := ix.Queue(Filter{}, 4096, make(chan struct{}, 1))
	defer q.Close()
	rev := uint64(0)
	feed := func(key, state string) { rev++; ix.feed(put(key, state, rev)) }
	for range 10 {
		feed("ns.a", large)
	}
	for _, key := range []string{"ns.b", "ns.c", "ns.d"} {
		feed(key, large)
	}
	changes, _, err := q.Take(2, all)
	require.NoError(t, err)
	require.Len(t, changes, 2)
	feed("ns.e", large)
	feed("ns.f", large)
	changes, _, err = q.Take(all, all)
	require.NoError(t, err)
	require.Len(t, changes, 4)
	feed("ns.alone", large+large+large+large+large)
	changes, _, err = q.Take(all, all)
	require.NoError(t, err)
	require.Len(t, changes, 1)
	for _, key := range []string{"ns.a", "ns.b", "ns.c", "ns.d"} {
		feed(key, large)
	}
	feed("ns.a", large+"x")
	_, _, err = q.Take(all, all)
	require.ErrorIs(t, err, ErrLost)
}

// A bound that was lowered below what waits loses nothing while nothing more comes to wait.
func TestWhatTakesNoMoreRoomIsTaken(t *testing.T) {
	t.Parallel()
	ix := memory()
	q := ix.Queue(Filter{}, 8, make(chan struct{}, 1))
	defer q.Close()
	for i, key := range []string{"ns.a", "ns.b", "ns.c"} {
		ix.feed(put(key, "old", uint64(i+1)))
	}
	q.Bound(2)
	ix.feed(put("ns.b", "new", 4))
	changes, _, err := q.Take(all, all)
	require.NoError(t, err)
	require.Len(t, changes, 3)
	require.Equal(t, "new", changes[1].Item.State)
}

func TestOverflowIsLostAndResyncs(t *testing.T) {
	t.Parallel()
	ix := memory()
	slow, fast := ix.Subscribe(Filter{}, 3), ix.Subscribe(Filter{Key: "ns.k7"}, 2)
	defer fast.Close()
	for rev := uint64(1); rev <= 10; rev++ {
		ix.feed(put(fmt.Sprintf("ns.k%d", rev), "s", rev))
	}
	for c := range slow.C { // at most the one that the pump held
		require.Equal(t, "ns.k1@1 s", spoken(c))
	}
	require.True(t, slow.Lost())
	require.Equal(t, []string{"ns.k7@7 s"}, fast.waiting())
	require.EqualValues(t, 1, ix.Stats().Lost)
	slow.Close()

	again := ix.Subscribe(Filter{}, 3)
	defer again.Close()
	require.Len(t, ix.List(Query{}).Items, 10)
	ix.feed(put("ns.k1", "t", 11))
	require.EqualValues(t, 10, again.Revision)
	require.Equal(t, []string{"ns.k1@11 t"}, again.waiting())

	ix.serve(newTable()) // built anew
	require.Equal(t, []string{"closed"}, again.waiting())
	require.True(t, again.Lost())
	require.True(t, fast.Lost())
}

// Readers that list at the revision where their subscription begins, and apply what it gives, end where the index is.
func TestConcurrentReadersConverge(t *testing.T) {
	t.Parallel()
	ix := memory()
	const last = 3000
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			seen := follow(ix, last)
			require.Equal(t, ix.List(Query{Limit: 1000}).Items, seen)
		})
	}
	for rev := uint64(1); rev <= last; rev++ {
		o := put(fmt.Sprintf("ns.k%03d", rev*31%200), fmt.Sprint("s", rev%5), rev)
		if o.Deleted = rev%7 == 0; o.Deleted {
			o = del(o.Key, rev)
		}
		if rev == last {
			o = put("ns.zzz", "end", rev)
		}
		ix.feed(o)
	}
	wg.Wait()
}

// follow keeps a copy of the index as a client would, until it has the last revision.
func follow(ix *Index, last uint64) []Item {
	for {
		s := ix.Subscribe(Filter{}, 50)
		mine := naive{}
		for _, i := range ix.List(Query{Limit: 1000}).Items {
			mine[i.Key] = i
		}
		for mine["ns.zzz"].Revision != last {
			c, ok := <-s.C
			if !ok {
				break // lost: begin again
			}
			if c.Item.Revision < mine[c.Item.Key].Revision {
				continue // the list had it
			}
			if mine[c.Item.Key] = c.Item; c.Deleted {
				delete(mine, c.Item.Key)
			}
		}
		s.Close()
		if mine["ns.zzz"].Revision == last {
			items, _ := mine.list(Query{Limit: 1000})
			return items
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	ix := memory()
	ix.feed(put("ns.a", "new", 3))
	require.NoError(t, ix.Wait(t.Context(), 3))

	done := make(chan error)
	go func() { done <- ix.Wait(t.Context(), 5) }()
	ix.waits(t, 1)
	ix.feed(put("ns.a", "new", 4))
	ix.waits(t, 1)
	require.EqualValues(t, 5, ix.Lag().Known)
	require.EqualValues(t, 4, ix.Lag().Applied)
	ix.feed(put("ns.a", "new", 6))
	require.NoError(t, <-done)

	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- ix.Wait(ctx, 7) }()
	ix.waits(t, 1)
	cancel()
	err := <-done
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, "kv: index of b is at revision 6, not yet at 7: context canceled")
	ix.waits(t, 0)
}

func (ix *Index) waits(t *testing.T, n int) {
	require.Eventually(t, func() bool {
		ix.mu.RLock()
		defer ix.mu.RUnlock()
		return len(ix.waiters) == n
	}, 10*time.Second, time.Millisecond)
}

func TestWaitFor(t *testing.T) {
	t.Parallel()
	ix := memory()
	ready := func(i Item) bool { return i.State == "ready" }
	type answer struct {
		item Item
		err  error
	}
	done := make(chan answer)
	ask := func(ctx context.Context) {
		go func() {
			i, err := ix.WaitFor(ctx, "ns.a", ready)
			done <- answer{i, err}
		}()
		require.Eventually(t, func() bool { return ix.Stats().Subscriptions == 1 }, 10*time.Second, time.Millisecond)
	}
	ask(t.Context())
	for rev, state := range []string{"new", "starting"} {
		ix.feed(put("ns.a", state, uint64(rev+1)))
	}
	ix.feed(del("ns.a", 3))
	ix.serve(newTable()) // it must outlive that
	require.Eventually(t, func() bool { return ix.Stats().Subscriptions == 1 }, 10*time.Second, time.Millisecond)
	ix.feed(put("ns.a", "ready", 4))
	got := <-done
	require.NoError(t, got.err)
	require.EqualValues(t, 4, got.item.Revision)

	now, err := ix.WaitFor(t.Context(), "ns.a", ready)
	require.NoError(t, err)
	require.Equal(t, got.item, now)

	ix.feed(put("ns.a", "stopped", 5))
	ctx, cancel := context.WithCancel(t.Context())
	ask(ctx)
	cancel()
	got = <-done
	require.ErrorIs(t, got.err, context.Canceled)
	require.Zero(t, ix.Stats().Subscriptions)
}
