package cluster

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/streams/embedded"
)

// A machine whose clock is away from the server's is told so once, and once when it agrees again. That a write takes long
// is no skew.
func TestClocksThatAreApart(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	n, _ := w.node("one")
	var log bytes.Buffer
	n.Log = slog.New(slog.NewTextHandler(&log, nil))
	var ahead, takes atomic.Int64 // of this machine's clock; how much later each look at it is
	var looks int64
	n.wall = func() time.Time {
		looks++
		return time.Now().Add(time.Duration(ahead.Load() + looks%2*takes.Load())).Round(0)
	}
	renewed := func() time.Duration {
		t.Helper()
		require.NoError(t, n.writeKey(w.Ctx, n.keyRevision()))
		w.Eventually("the watch has it", func() bool {
			it, ok := n.index.Get(nodeKey + n.Name)
			return ok && it.Revision == n.keyRevision()
		})
		n.compareClocks()
		return n.Skew()
	}
	require.Zero(t, renewed())
	for _, by := range []time.Duration{time.Minute, -time.Minute} {
		log.Reset()
		ahead.Store(int64(by))
		for range 3 {
			require.InDelta(t, -by.Seconds(), renewed().Seconds(), 5)
		}
		require.Equal(t, 1, strings.Count(log.String(), "clocks of this machine and of the NATS server differ"), log.String())
		ahead.Store(0)
		require.Zero(t, renewed())
		require.Equal(t, 1, strings.Count(log.String(), "agree again"), log.String())
	}
	log.Reset()
	takes.Store(int64(-time.Minute)) // sent a minute before it was stored
	require.Zero(t, renewed())
	require.Empty(t, log.String())
}
