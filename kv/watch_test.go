package kv

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"
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
	n := setup(t)
	n.bucket(t, "things")
	b := open(t, n, "things")
	n.put(t, "things", "a.one", `{"state":"old"}`)
	n.put(t, "things", "a.two", `{"state":"x"}`)
	n.put(t, "things", "a.one", `{"state":"new"}`)
	n.put(t, "things", "b.bad", `[`)
	n.remove(t, "things", "a.two")

	t.Run("SnapshotThenChanges", func(t *testing.T) {
		next := reader(t, b.Watch(t.Context(), "", 0))
		for _, want := range []string{"a.one@3 new", "b.bad@4 !", "a.two@5 deleted", "synced"} {
			require.Equal(t, want, next())
		}
		rev := n.put(t, "things", "a.three", `{"state":"y"}`)
		require.Equal(t, fmt.Sprintf("a.three@%d y", rev), next())
		rev = n.remove(t, "things", "a.three")
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
	n := setup(t)
	n.bucket(t, "things")
	b := open(t, n, "things")
	n.put(t, "things", "a", `{"state":"1"}`)
	next := reader(t, b.Watch(t.Context(), "", 0))
	require.Equal(t, "a@1 1", next())
	require.Equal(t, "synced", next())
	n.stop()
	n.start(t)
	n.eventually(t, "things", "b", `{"state":"2"}`)
	n.remove(t, "things", "a")
	require.Equal(t, "b@2 2", next())
	require.Equal(t, "a@3 deleted", next())
}

func TestWatchEndsWhenTheStreamIsAnother(t *testing.T) {
	t.Parallel()
	n := setup(t)
	n.bucket(t, "things")
	b := open(t, n, "things")
	n.put(t, "things", "a", `{"state":"1"}`)
	next := reader(t, b.Watch(t.Context(), "", 0))
	require.Equal(t, "a@1 1", next())
	require.Equal(t, "synced", next())
	require.NoError(t, n.js.DeleteStream(t.Context(), "KV_things"))
	n.bucket(t, "things")
	n.put(t, "things", "b", `{"state":"1"}`)
	require.NoError(t, n.nc.ForceReconnect())
	require.Equal(t, "@0 !", next())
	require.Equal(t, "end", next())
}

func TestParseReply(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string][4]uint64{
		"$JS.ACK.KV_b.cons.1.22.33.44.55":             {22, 33, 44, 55},
		"$JS.ACK.hub.acc.KV_b.cons.1.22.33.44.55":     {22, 33, 44, 55},
		"$JS.ACK.hub.acc.KV_b.cons.1.22.33.44.55.rnd": {22, 33, 44, 55},
	} {
		sseq, dseq, at, pending, ok := parseReply(reply)
		require.True(t, ok, reply)
		require.Equal(t, want, [4]uint64{sseq, dseq, uint64(at), pending}, reply)
	}
	for _, reply := range []string{"", "$JS.ACK.KV_b.cons.1.22.33.44", "$JS.ACK.KV_b.cons.1.x.33.44.55"} {
		_, _, _, _, ok := parseReply(reply)
		require.False(t, ok, reply)
	}
}
