package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/powerloss"
	"github.com/bcc94042/instar/streams"
)

// A value that was synced is there after a power loss, or the one that replaced it: the block that it was in may be removed, or written anew without it, and that be on disk before
// what replaced it. So each write to a bucket is synced by itself.
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
