package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/powerloss"
	"github.com/bcc94042/instar/streams"
)

// A value that was synced is there after a power loss, or the one that replaced it: the block that it was in may be removed, or written anew without it, and that be on disk before
// what replaced it. So links to blocks are kept (links.go).
func TestAPowerLossCostsNoValueThatWasReplaced(t *testing.T) { // not parallel: the disk that the others use stalls for seconds
	const keys, others, large = 120, 20, 64 << 10 // some blocks of 8 MB
	for _, how := range []struct {
		name    string
		replace int   // of the keys
		once    int   // of the others
		victims []int // that are replaced when the power goes
	}{
		{"the block becomes empty", keys - 1, others, []int{keys - 1}},
		{"the block is compacted", 10, 0, span(10, 90)},
	} {
		t.Run(how.name, func(t *testing.T) {
			d, err := powerloss.New(t.TempDir(), powerloss.Ext4, 320<<20)
			if errors.Is(err, powerloss.ErrCannot) {
				t.Skip(err)
			}
			require.NoError(t, err)
			t.Cleanup(func() { _ = d.Close() })
			o := Options{Dir: filepath.Join(d.Path, "data"), Profile: Fsync, Log: slog.New(slog.DiscardHandler)}
			s, err := Start(o)
			require.NoError(t, err)
			nc, js := connected(t, s)
			_, err = streams.Ensure(t.Context(), js, streams.Plan{States: []string{"things"}})
			require.NoError(t, err)
			s.flusher.end() // as if the power went before its next look
			sync := func(stream string) {
				done := make(chan error, 1)
				s.Syncer()(stream, func(err error) { done <- err })
				require.NoError(t, <-done)
			}
			put := func(key string, i int) {
				_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: fmt.Sprintf("$KV.things.%s%d", key, i), Data: make([]byte, large)})
				require.NoError(t, err)
			}
			all := func(key string, n int) {
				for i := range n {
					put(key, i)
				}
			}
			sync("KV_things")
			sync("EVENTS")
			all("k", keys)
			all("other", others)
			sync("KV_things")
			all("k", how.replace)
			all("other", how.once)
			sync("KV_things")
			for _, i := range how.victims {
				put("k", i)
			}
			_, err = js.Publish(t.Context(), "instar.evt.thing.a.x", nil)
			require.NoError(t, err)
			sync("EVENTS") // which takes along what the file system has noted of all of them
			require.NoError(t, d.Cut())
			nc.Close()
			_ = s.Shutdown(context.Background()) // its disk is gone
			require.NoError(t, d.Back())

			s, err = Start(o)
			require.NoError(t, err)
			nc, js = connected(t, s)
			st, err := js.Stream(t.Context(), "KV_things")
			require.NoError(t, err)
			for i := range keys {
				_, err := st.GetLastMsgForSubject(t.Context(), fmt.Sprintf("$KV.things.k%d", i))
				require.NoError(t, err, "k%d was synced", i)
			}
			nc.Close()
			require.NoError(t, s.Shutdown(context.Background()))
		})
	}
}

func span(from, to int) (list []int) {
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}

// The same under load: blocks are filled, removed and written anew all the time, by values of which some are replaced often and some seldom.
func TestAPowerLossCostsNoValueOfABusyBucket(t *testing.T) { // not parallel: the disk that the others use stalls for seconds
	for _, kind := range []powerloss.Kind{powerloss.Ext4, powerloss.XFS} {
		t.Run(string(kind), func(t *testing.T) {
			d, err := powerloss.New(t.TempDir(), kind, 640<<20)
			if errors.Is(err, powerloss.ErrCannot) {
				t.Skip(err)
			}
			require.NoError(t, err)
			t.Cleanup(func() { _ = d.Close() })
			var last sync.Map // by key, what was synced: over all power losses
			for round := range *outages {
				busy(t, d, round, &last)
			}
		})
	}
}

// busy replaces values until the power goes, and requires that those are there that were synced, in this round and before, or later ones.
func busy(t *testing.T, d *powerloss.Disk, round int, last *sync.Map) {
	o := Options{Dir: filepath.Join(d.Path, "data"), Profile: Fsync, Log: slog.New(slog.DiscardHandler)}
	start := func() (*Server, *nats.Conn, jetstream.JetStream) {
		s, err := Start(o)
		require.NoError(t, err)
		nc, js := connected(t, s)
		return s, nc, js
	}
	s, nc, js := start()
	things(t, js)
	const writers, keys, large = 8, 12, 96 << 10
	var cut atomic.Bool
	var all sync.WaitGroup
	var writes atomic.Int64
	for w := range writers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(round), uint64(w))) // #nosec G404 -- a test
			for n := round << 20; !cut.Load(); n++ {
				key := fmt.Sprintf("w%d-%d", w, min(random.IntN(keys), random.IntN(keys), random.IntN(keys)))
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				_, err := js.PublishMsg(ctx, &nats.Msg{Subject: "$KV.things." + key, Data: append(fmt.Append(nil, n, " "), make([]byte, large)...)})
				cancel()
				done := make(chan error, 1)
				if err == nil {
					s.Syncer()("KV_things", func(err error) { done <- err })
					err = <-done
				}
				if err != nil || cut.Load() { // a sync that ends when the power has gone is of a disk that is not there
					return
				}
				last.Store(key, n)
				writes.Add(1)
			}
		})
	}
	all.Go(func() { // takes along what the file system has noted
		for !cut.Load() {
			done := make(chan error, 1)
			if _, err := js.Publish(context.Background(), "instar.evt.thing.a.x", nil); err != nil {
				return
			}
			s.Syncer()("EVENTS", func(err error) { done <- err })
			<-done
		}
	})
	enough := int64(130 + 37*(round%11)) // blocks are of 8 MB
	require.Eventually(t, func() bool { return writes.Load() > enough }, time.Minute, time.Millisecond)
	want := map[string]int{}
	last.Range(func(key, n any) bool { want[key.(string)] = n.(int); return true })
	require.NoError(t, d.Cut())
	cut.Store(true)
	all.Wait()
	nc.Close()
	_ = s.Shutdown(context.Background()) // its disk is gone
	require.NoError(t, d.Back())

	s, nc, js = start()
	st, err := js.Stream(t.Context(), "KV_things")
	require.NoError(t, err)
	for key, n := range want {
		m, err := st.GetLastMsgForSubject(t.Context(), "$KV.things."+key)
		require.NoError(t, err, "%s was synced", key)
		var have int
		_, err = fmt.Sscan(string(m.Data), &have)
		require.NoError(t, err)
		require.GreaterOrEqual(t, have, n, key)
	}
	info, err := st.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	require.NoError(t, err)
	require.Equal(t, uint64(len(info.State.Subjects)), info.State.Msgs, "one value of a key")
	nc.Close()
	require.NoError(t, s.Shutdown(context.Background()))
	kept, err := filepath.Glob(filepath.Join(o.storeDir(), streamsDir, "*", linksDir))
	require.NoError(t, err)
	require.Empty(t, kept, "after a clean stop")
}
