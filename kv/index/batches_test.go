package index

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	ix := memory()
	ix.feed(put("ns.a", "new", 1))
	b := ix.Batches(Filter{}, 2)
	require.EqualValues(t, 1, b.Revision)
	next := func() (all []string, revision uint64, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		changes, revision, err := b.Next(ctx)
		for _, c := range changes {
			all = append(all, spoken(c))
		}
		return all, revision, err
	}
	_, _, err := next()
	require.ErrorIs(t, err, context.DeadlineExceeded, "there is nothing yet")

	ix.feed(put("ns.a", "old", 2), put("ns.b", "new", 3), put("ns.a", "gone", 4))
	got, revision, err := next()
	require.NoError(t, err)
	require.Equal(t, []string{"ns.a@4 gone", "ns.b@3 new"}, got, "each key's newest")
	require.EqualValues(t, 4, revision)

	ix.feed(del("ns.never", 5))
	got, revision, err = next()
	require.NoError(t, err)
	require.Empty(t, got)
	require.EqualValues(t, 5, revision, "a write that changes nothing moves the revision on")

	ix.feed(put("ns.a", "x", 6), put("ns.b", "x", 7), put("ns.c", "x", 8))
	_, _, err = next()
	require.ErrorIs(t, err, ErrLost, "three keys wait and two may")
	b.Close()
	b.Close()
	require.Zero(t, ix.Stats().Subscriptions)
	require.Empty(t, ix.subs.drawn)
}

// Whatever the writers do meanwhile: when a batch says a revision, every write up to it was given.
func TestBatchesKnowWhatTheyHave(t *testing.T) {
	t.Parallel()
	ix := memory()
	b := ix.Batches(Filter{}, 1000)
	defer b.Close()
	const writes = 5000
	go func() {
		for rev := uint64(1); rev <= writes; rev += 5 {
			ops := make([]op, 0, 5)
			for n := range uint64(5) {
				ops = append(ops, put(fmt.Sprintf("ns.k%d", (rev+n)%7), "s", rev+n))
			}
			ix.feed(ops...)
		}
	}()
	have := map[string]uint64{}
	for revision := uint64(0); revision < writes; {
		changes, at, err := b.Next(t.Context())
		require.NoError(t, err)
		for _, c := range changes {
			have[c.Item.Key] = c.Item.Revision
		}
		revision = at
		for back := range min(revision, 7) { // the last seven writes are those of the seven keys
			rev := revision - back
			require.GreaterOrEqual(t, have[fmt.Sprintf("ns.k%d", rev%7)], rev)
		}
	}
}

// What is taken at once is bounded by the bytes of the values, too.
func TestAQueueIsTakenByBytes(t *testing.T) {
	t.Parallel()
	ix := memory()
	q := ix.Queue(Filter{}, 9, make(chan struct{}, 1))
	defer q.Close()
	ix.feed(put("ns.a", "12345", 1), put("ns.b", "12345", 2), put("ns.c", "12345", 3))
	for _, want := range []struct {
		keys     int
		revision uint64
	}{{2, 0}, {1, 3}, {0, 3}} {
		changes, revision, err := q.Take(9, 6)
		require.NoError(t, err)
		require.Len(t, changes, want.keys, "the value that reaches the bound is the last one")
		require.Equal(t, want.revision, revision)
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	ix := memory()
	ix.feed(put("ns.a", "new", 1))
	wake := make(chan struct{}, 1)
	q, other := ix.Queue(Filter{}, 3, wake), ix.Queue(Filter{Namespace: "ns"}, 3, wake)
	defer other.Close()
	take := func(most int) (all []string, revision uint64) {
		changes, revision, err := q.Take(most, math.MaxInt)
		require.NoError(t, err)
		for _, c := range changes {
			all = append(all, spoken(c))
		}
		return all, revision
	}
	got, revision := take(1)
	require.Empty(t, got)
	require.EqualValues(t, 1, revision)

	ix.feed(put("ns.a", "x", 2), put("ns.b", "x", 3), put("ns.c", "x", 4))
	<-wake
	got, revision = take(1)
	require.Equal(t, []string{"ns.a@2 x"}, got)
	require.EqualValues(t, 1, revision, "two wait")
	ix.feed(put("ns.b", "y", 5), put("ns.a", "y", 6))
	got, revision = take(1)
	require.Equal(t, []string{"ns.b@5 y"}, got, "the newest, where the older one stood")
	require.EqualValues(t, 1, revision)
	got, revision = take(1)
	require.Equal(t, []string{"ns.c@4 x"}, got)
	require.EqualValues(t, 4, revision, "what waited when the first was taken was given")
	got, revision = take(2)
	require.Equal(t, []string{"ns.a@6 y"}, got)
	require.EqualValues(t, 6, revision)

	mine, _, err := other.Take(9, all)
	require.NoError(t, err)
	ix.feed(put("ns.d", "x", 7))
	one, _, err := q.Take(9, all)
	require.NoError(t, err)
	two, _, err := other.Take(9, all)
	require.NoError(t, err)
	require.Len(t, mine, 3)
	made := 0
	for _, c := range []Change{one[0], two[0]} {
		require.Equal(t, "text", string(c.Text.Of(func() []byte { made++; return []byte("text") })))
	}
	require.Equal(t, 1, made, "once for all")

	q.Bound(1)
	ix.feed(put("ns.a", "x", 8), put("ns.b", "x", 9))
	_, _, err = q.Take(9, all)
	require.ErrorIs(t, err, ErrLost)
	q.Close()
	require.Equal(t, 1, ix.Stats().Subscriptions)
}
