package kv

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// fallBack puts the server's directory back to what it was at the mark, has others write meanwhile, and comes back.
func (n *node) fallBack(t *testing.T, mark string, others func(put func(key, value string))) {
	t.Helper()
	n.stop()
	require.NoError(t, os.RemoveAll(n.opts.StoreDir))
	require.NoError(t, os.CopyFS(n.opts.StoreDir, os.DirFS(mark)))
	port := n.opts.Port
	n.opts.Port = -1
	n.start(t) // where those who follow do not look
	nc, err := nats.Connect(n.srv.ClientURL())
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	others(func(key, value string) {
		_, err := js.Publish(t.Context(), "$KV.things."+key, []byte(value))
		require.NoError(t, err)
	})
	nc.Close()
	n.stop()
	n.opts.Port = port
	n.start(t)
}

// mark is a copy of the server's directory as it is now. The server is restarted for it.
func (n *node) mark(t *testing.T) string {
	t.Helper()
	n.stop()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(n.opts.StoreDir)))
	n.start(t)
	require.Eventually(t, func() bool { return n.nc.IsConnected() && n.nc.Flush() == nil }, 10*time.Second, 5*time.Millisecond)
	return dir
}

func (n *node) states(ix *Index) map[string]string {
	m := map[string]string{}
	for _, it := range ix.List(Query{Limit: 1000}).Items {
		m[it.Key] = it.State
	}
	return m
}

func TestIndexOfAStreamThatLostItsEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lost   func(n *node, t *testing.T) // is written after the mark and seen
		others func(put func(key, value string))
		want   map[string]string
		builds int
	}{
		"MoreWasWrittenSinceThanWasLost": {
			lost: func(n *node, t *testing.T) {
				n.put(t, "things", "ns.a", `{"state":"lost"}`)
				n.put(t, "things", "ns.b", `{"state":"lost"}`)
			},
			others: func(put func(key, value string)) {
				for range 5 {
					put("ns.c", `{"state":"new"}`)
				}
			},
			want: map[string]string{"ns.a": "old", "ns.c": "new"}, builds: 2,
		},
		"TheLastKeyWasWrittenAgain": {
			lost: func(n *node, t *testing.T) {
				n.put(t, "things", "ns.a", `{"state":"lost"}`)
				n.put(t, "things", "ns.c", `{"state":"lost"}`)
			},
			others: func(put func(key, value string)) {
				for range 5 {
					put("ns.c", `{"state":"new"}`)
				}
			},
			want: map[string]string{"ns.a": "old", "ns.c": "new"}, builds: 2,
		},
		"ADeletionWasLost": {
			lost: func(n *node, t *testing.T) { n.remove(t, "things", "ns.a") },
			others: func(put func(key, value string)) {
				put("ns.c", `{"state":"new"}`)
				put("ns.d", `{"state":"new"}`)
			},
			want: map[string]string{"ns.a": "old", "ns.c": "new", "ns.d": "new"}, builds: 2,
		},
		"AsMuchWasWrittenAsWasLost": {
			lost:   func(n *node, t *testing.T) { n.put(t, "things", "ns.a", `{"state":"lost"}`) },
			others: func(put func(key, value string)) { put("ns.c", `{"state":"new"}`) },
			want:   map[string]string{"ns.a": "old", "ns.c": "new"}, builds: 2,
		},
		"AllWasWrittenAgain": {
			lost: func(n *node, t *testing.T) { n.put(t, "things", "ns.a", `{"state":"lost"}`) },
			others: func(put func(key, value string)) {
				put("ns.c", `{"state":"new"}`)
				put("ns.a", `{"state":"new"}`)
			},
			want: map[string]string{"ns.a": "new", "ns.c": "new"}, builds: 2, // the watch may see the stream before its end is long enough again
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := setup(t)
			n.bucket(t, "things")
			n.put(t, "things", "ns.a", `{"state":"old"}`)
			mark := n.mark(t)
			ix := n.run(t, "things")
			tc.lost(n, t)
			lost, err := n.js.Stream(t.Context(), "KV_things")
			require.NoError(t, err)
			require.NoError(t, ix.Wait(t.Context(), lost.CachedInfo().State.LastSeq))
			n.fallBack(t, mark, tc.others)
			require.Eventually(t, func() bool { return fmt.Sprint(n.states(ix)) == fmt.Sprint(tc.want) }, 10*time.Second, 5*time.Millisecond, "%v", n.states(ix))
			require.LessOrEqual(t, int(ix.Stats().Builds), tc.builds)
		})
	}
}

// A watch cannot take back what it gave: it ends.
func TestWatchOfAStreamThatLostItsEnd(t *testing.T) {
	t.Parallel()
	n := setup(t)
	n.bucket(t, "things")
	n.put(t, "things", "ns.a", `{"state":"old"}`)
	mark := n.mark(t)
	b := open(t, n, "things")
	next := reader(t, b.Watch(t.Context(), "ns.a", 0))
	require.Equal(t, "ns.a@1 old", next())
	require.Equal(t, "synced", next())
	n.put(t, "things", "ns.a", `{"state":"lost"}`)
	require.Equal(t, "ns.a@2 lost", next())
	n.fallBack(t, mark, func(put func(key, value string)) {
		put("ns.b", `{"state":"new"}`)
		put("ns.c", `{"state":"new"}`)
	})
	require.Equal(t, "@0 !", next())
	require.Equal(t, "end", next())
}

// What was written again comes again, so nothing that was seen is needed to go on.
func TestIndexResumesWhenAllThatItSawWasWrittenAgain(t *testing.T) {
	t.Parallel()
	n := setup(t)
	n.bucket(t, "things")
	for i := range 3 {
		n.put(t, "things", fmt.Sprintf("ns.k%d", i), `{"state":"old"}`)
	}
	ix := n.run(t, "things")
	mark := n.mark(t) // nothing is lost by going back to it
	n.fallBack(t, mark, func(put func(key, value string)) {
		for i := range 3 {
			put(fmt.Sprintf("ns.k%d", i), `{"state":"new"}`)
		}
	})
	require.NoError(t, ix.Wait(t.Context(), 6))
	require.Equal(t, map[string]int{"new": 3}, ix.Counts(""))
	require.EqualValues(t, 1, ix.Stats().Builds)
}

func TestIndexIsBuiltAnewWhenNoneOfManyWitnessesIsLeft(t *testing.T) {
	t.Parallel()
	n := setup(t)
	n.bucket(t, "things")
	for i := range 2 * maxWitnesses {
		n.put(t, "things", fmt.Sprintf("ns.k%d", i), `{"state":"old"}`)
	}
	ix := n.run(t, "things")
	mark := n.mark(t)
	n.fallBack(t, mark, func(put func(key, value string)) {
		for i := range 2 * maxWitnesses {
			put(fmt.Sprintf("ns.k%d", i), `{"state":"new"}`)
		}
	})
	require.Eventually(t, func() bool { return ix.Counts("")["new"] == 2*maxWitnesses }, 10*time.Second, 5*time.Millisecond)
	require.EqualValues(t, 2, ix.Stats().Builds)
}
