package kv

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/kvtest"
)

// told is an entry in words.
func told(e Entry[thing], err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("%s@%d !", e.Key, e.Revision)
	case e.Synced:
		return "synced"
	case e.Deleted:
		return fmt.Sprintf("%s@%d deleted", e.Key, e.Revision)
	}
	return fmt.Sprintf("%s@%d %s", e.Key, e.Revision, e.Value.State)
}

// reader pulls from a watch one by one.
func reader(t *testing.T, seq iter.Seq2[Entry[thing], error]) (next func() string) {
	pull, stop := iter.Pull2(seq)
	t.Cleanup(stop)
	return func() string {
		e, err, ok := pull()
		if !ok {
			return "end"
		}
		return told(e, err)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	b := open(t, n, "things")
	n.Put(t, "things", "a.one", `{"state":"old"}`)
	n.Put(t, "things", "a.two", `{"state":"x"}`)
	n.Put(t, "things", "a.one", `{"state":"new"}`)
	n.Put(t, "things", "b.bad", `[`)
	n.Remove(t, "things", "a.two")

	t.Run("SnapshotThenChanges", func(t *testing.T) {
		next := reader(t, b.Watch(t.Context(), "", 0))
		for _, want := range []string{"a.one@3 new", "b.bad@4 !", "a.two@5 deleted", "synced"} {
			require.Equal(t, want, next())
		}
		rev := n.Put(t, "things", "a.three", `{"state":"y"}`)
		require.Equal(t, fmt.Sprintf("a.three@%d y", rev), next())
		rev = n.Remove(t, "things", "a.three")
		require.Equal(t, fmt.Sprintf("a.three@%d deleted", rev), next())
	})
	t.Run("FilterAndResume", func(t *testing.T) {
		next := reader(t, b.Watch(t.Context(), "a.*", 3))
		require.Equal(t, "a.two@5 deleted", next())
		require.Contains(t, next(), "a.three")
		require.Equal(t, "synced", next())
		next = reader(t, b.Watch(t.Context(), "a.one", 3))
		require.Equal(t, "synced", next())
	})
	t.Run("ListEnds", func(t *testing.T) {
		next := reader(t, b.List(t.Context(), "a.>"))
		require.Equal(t, "a.one@3 new", next())
		require.Equal(t, "end", next())
		next = reader(t, b.List(t.Context(), "nobody"))
		require.Equal(t, "end", next())
	})
	t.Run("AheadOfTheStream", func(t *testing.T) {
		for _, err := range b.Watch(t.Context(), "", 1000) {
			require.ErrorIs(t, err, ErrReset)
		}
	})
	t.Run("EndsWithItsContext", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last error
		for e, err := range b.Watch(ctx, "a.one", 0) {
			if last = err; e.Synced {
				cancel()
			}
		}
		require.ErrorIs(t, last, context.Canceled)
	})
}

func TestWatchGoesOnAfterServerRestart(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	b := open(t, n, "things")
	n.Put(t, "things", "a", `{"state":"1"}`)
	next := reader(t, b.Watch(t.Context(), "", 0))
	require.Equal(t, "a@1 1", next())
	require.Equal(t, "synced", next())
	n.Stop()
	n.Restart(t)
	n.PutOnceBack(t, "things", "b", `{"state":"2"}`)
	n.Remove(t, "things", "a")
	require.Equal(t, "b@2 2", next())
	require.Equal(t, "a@3 deleted", next())
}

func TestWatchEndsWhenTheStreamIsAnother(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	b := open(t, n, "things")
	n.Put(t, "things", "a", `{"state":"1"}`)
	next := reader(t, b.Watch(t.Context(), "", 0))
	require.Equal(t, "a@1 1", next())
	require.Equal(t, "synced", next())
	require.NoError(t, n.JS.DeleteStream(t.Context(), "KV_things"))
	n.Create(t, "things")
	n.Put(t, "things", "b", `{"state":"1"}`)
	require.NoError(t, n.NC.ForceReconnect())
	require.Equal(t, "@0 !", next())
	require.Equal(t, "end", next())
}

// A watch cannot take back what it gave: it ends.
func TestWatchOfAStreamThatLostItsEnd(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	n.Put(t, "things", "ns.a", `{"state":"old"}`)
	mark := n.Snapshot(t)
	b := open(t, n, "things")
	next := reader(t, b.Watch(t.Context(), "ns.a", 0))
	require.Equal(t, "ns.a@1 old", next())
	require.Equal(t, "synced", next())
	n.Put(t, "things", "ns.a", `{"state":"lost"}`)
	require.Equal(t, "ns.a@2 lost", next())
	n.Restore(t, mark, "things", func(put func(key, value string)) {
		put("ns.b", `{"state":"new"}`)
		put("ns.c", `{"state":"new"}`)
	})
	require.Equal(t, "@0 !", next())
	require.Equal(t, "end", next())
}
