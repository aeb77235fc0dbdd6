package index

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/internal/feed"
	"github.com/bcc94042/instar/kv/kvtest"
)

func statesOf(ix *Index) map[string]string {
	m := map[string]string{}
	for _, it := range ix.List(Query{Limit: 1000}).Items {
		m[it.Key] = it.State
	}
	return m
}

func TestIndexOfAStreamThatLostItsEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lost   func(n *kvtest.Node, t *testing.T) // is written after the mark and seen
		others func(put func(key, value string))
		want   map[string]string
		builds int
	}{
		"MoreWasWrittenSinceThanWasLost": {
			lost: func(n *kvtest.Node, t *testing.T) {
				n.Put(t, "things", "ns.a", `{"state":"lost"}`)
				n.Put(t, "things", "ns.b", `{"state":"lost"}`)
			},
			others: func(put func(key, value string)) {
				for range 5 {
					put("ns.c", `{"state":"new"}`)
				}
			},
			want: map[string]string{"ns.a": "old", "ns.c": "new"}, builds: 2,
		},
		"TheLastKeyWasWrittenAgain": {
			lost: func(n *kvtest.Node, t *testing.T) {
				n.Put(t, "things", "ns.a", `{"state":"lost"}`)
				n.Put(t, "things", "ns.c", `{"state":"lost"}`)
			},
			others: func(put func(key, value string)) {
				for range 5 {
					put("ns.c", `{"state":"new"}`)
				}
			},
			want: map[string]string{"ns.a": "old", "ns.c": "new"}, builds: 2,
		},
		"ADeletionWasLost": {
			lost: func(n *kvtest.Node, t *testing.T) { n.Remove(t, "things", "ns.a") },
			others: func(put func(key, value string)) {
				put("ns.c", `{"state":"new"}`)
				put("ns.d", `{"state":"new"}`)
			},
			want: map[string]string{"ns.a": "old", "ns.c": "new", "ns.d": "new"}, builds: 2,
		},
		"AsMuchWasWrittenAsWasLost": {
			lost:   func(n *kvtest.Node, t *testing.T) { n.Put(t, "things", "ns.a", `{"state":"lost"}`) },
			others: func(put func(key, value string)) { put("ns.c", `{"state":"new"}`) },
			want:   map[string]string{"ns.a": "old", "ns.c": "new"}, builds: 2,
		},
		"AllWasWrittenAgain": {
			lost: func(n *kvtest.Node, t *testing.T) { n.Put(t, "things", "ns.a", `{"state":"lost"}`) },
			others: func(put func(key, value string)) {
				put("ns.c", `{"state":"new"}`)
				put("ns.a", `{"state":"new"}`)
			},
			want: map[string]string{"ns.a": "new", "ns.c": "new"}, builds: 2, // the watch may see the stream before its end is long enough again
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := kvtest.Start(t)
			n.Create(t, "things")
			n.Put(t, "things", "ns.a", `{"state":"old"}`)
			mark := n.Snapshot(t)
			ix := run(t, n, "things")
			tc.lost(n, t)
			lost, err := n.JS.Stream(t.Context(), "KV_things")
			require.NoError(t, err)
			require.NoError(t, ix.Wait(t.Context(), lost.CachedInfo().State.LastSeq))
			n.Restore(t, mark, "things", tc.others)
			require.Eventually(t, func() bool { return fmt.Sprint(statesOf(ix)) == fmt.Sprint(tc.want) }, 10*time.Second, 5*time.Millisecond, "%v", statesOf(ix))
			require.LessOrEqual(t, int(ix.Stats().Builds), tc.builds)
		})
	}
}

// What was written again comes again, so nothing that was seen is needed to go on.
func TestIndexResumesWhenAllThatItSawWasWrittenAgain(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	for i := range 3 {
		n.Put(t, "things", fmt.Sprintf("ns.k%d", i), `{"state":"old"}`)
	}
	ix := run(t, n, "things")
	mark := n.Snapshot(t) // nothing is lost by going back to it
	n.Restore(t, mark, "things", func(put func(key, value string)) {
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
	n := kvtest.Start(t)
	n.Create(t, "things")
	for i := range 2 * feed.MaxWitnesses {
		n.Put(t, "things", fmt.Sprintf("ns.k%d", i), `{"state":"old"}`)
	}
	ix := run(t, n, "things")
	mark := n.Snapshot(t)
	n.Restore(t, mark, "things", func(put func(key, value string)) {
		for i := range 2 * feed.MaxWitnesses {
			put(fmt.Sprintf("ns.k%d", i), `{"state":"new"}`)
		}
	})
	require.Eventually(t, func() bool { return ix.Counts("")["new"] == 2*feed.MaxWitnesses }, 10*time.Second, 5*time.Millisecond)
	require.EqualValues(t, 2, ix.Stats().Builds)
}

// Of a stream without a leader any member answers, of what it has itself: what it lacks is not lost, and nothing is told anew.
func TestAMemberWithoutALeaderResetsNothing(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	for _, key := range []string{"default.a", "default.b"} {
		n.Put(t, "things", key, `{"state":"ready"}`)
	}
	s, err := n.JS.Stream(t.Context(), "KV_things")
	require.NoError(t, err)
	created := s.CachedInfo().Created.Format(time.RFC3339Nano)
	var alone atomic.Bool
	asked := make(chan struct{}, 100)
	js := n.Faulty(t, func(request string) string {
		if !alone.Load() || !strings.HasPrefix(request, "STREAM.INFO.") {
			return ""
		}
		asked <- struct{}{}
		return `{"created":"` + created + `","config":{"name":"KV_things"},"state":{"messages":1,"first_seq":1,"last_seq":1,"num_subjects":1},"cluster":{"name":"c","replicas":[{"name":"b"}]}}`
	})
	ix := New(js, "things", func(string, []byte) (Meta, error) { return Meta{}, nil }, Options{})
	var runs sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	runs.Go(func() { _ = ix.Run(ctx) })
	defer runs.Wait()
	defer cancel()
	<-ix.Ready()
	watch := ix.Subscribe(Filter{}, 16)
	defer watch.Close()
	alone.Store(true)
	for c := range s.ListConsumers(t.Context()).Info() { // they go with the member that had them
		require.NoError(t, s.DeleteConsumer(t.Context(), c.Name))
	}
	for range 2 {
		select {
		case <-asked:
		case <-time.After(30 * time.Second):
			require.Fail(t, "the index does not look")
		}
	}
	alone.Store(false)
	rev := n.Put(t, "things", "default.a", `{"state":"gone"}`)
	c, ok := <-watch.C
	require.True(t, ok, "everything is told anew")
	require.Equal(t, rev, c.Item.Revision)
	require.EqualValues(t, 1, ix.Stats().Builds)
}
