package gctune

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercent(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 1000, 1 << 20: 1000, 8 << 20: 400, 16 << 20: 200, 32 << 20: 100, 64 << 20: 100, 1 << 40: 100} {
		require.Equal(t, want, percent(live), live)
	}
}

func TestAfterEachCollection(t *testing.T) { // not beside others: it collects garbage
	var calls atomic.Int64
	afterEach(func() { calls.Add(1) })
	for n := range int64(5) {
		require.Eventually(t, func() bool {
			runtime.GC()
			return calls.Load() > n+1
		}, 20*time.Second, time.Millisecond)
	}
}

func TestTheRuntimeIsTold(t *testing.T) { // not beside others: the percentage is that of the process
	before := debug.SetGCPercent(123)
	defer debug.SetGCPercent(before)
	tn := new(tuner)
	runtime.GC() // and so it knows what is in use
	tn.tune()
	require.Equal(t, tn.set, debug.SetGCPercent(123))
	require.Greater(t, tn.set, 100, "tests are small")
	tn.tune()
	require.Equal(t, 123, debug.SetGCPercent(123), "what is as good as set is not set again")
}
