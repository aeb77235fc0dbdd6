package discovery_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/discovery"
)

// A node that is cut off from the others may still hear its own copy of the bucket; that it is cut off is what counts.
func TestApartIsStale(t *testing.T) {
	t.Parallel()
	var hears atomic.Bool
	var asked atomic.Int64
	b := setup(t, func(o *discovery.Options) {
		o.Hears = func() bool { asked.Add(1); return hears.Load() }
	})
	require.Zero(t, b.catalog.Stale(), "it is no member yet, and has read everything")
	turn := func(to, stale bool) {
		t.Helper()
		turned := b.catalog.Turned()
		hears.Store(to)
		select {
		case <-turned:
		case <-time.After(10 * time.Second):
			t.Fatal("it does not turn")
		}
		require.Equal(t, stale, b.catalog.Stale() > 0)
	}
	hears.Store(true)
	before := asked.Load()
	require.Eventually(t, func() bool { return asked.Load() > before+1 }, 10*time.Second, time.Millisecond)
	require.Zero(t, b.catalog.Stale())
	turn(false, true)
	require.Less(t, b.catalog.Stale(), 5*time.Second)
	turn(true, false)
}
