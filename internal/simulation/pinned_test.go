package simulation

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/boottime"
	"github.com/bcc94042/instar/internal/simulation/pinned"
)

// shuffled lets the runtime choose as often as it can: cases of selects, the order of maps, of timers of one instant and of goroutines.
func shuffled(t *testing.T, seed uint64) (sum [32]byte) {
	synctest.Test(t, func(*testing.T) {
		pinned.Seed(seed)
		h := sha256.New()
		var mu sync.Mutex
		var all sync.WaitGroup
		a, b, end := make(chan int), make(chan int), make(chan struct{})
		for i := range 50 {
			all.Go(func() {
				for range 20 {
					select {
					case a <- i:
					case b <- i:
					case <-end:
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		m := map[string]int{}
		for i := range 1000 {
			select {
			case n := <-a:
				m[fmt.Sprint("a", n)]++
				fmt.Fprint(h, "a", n, i)
			case n := <-b:
				m[fmt.Sprint("b", n)]++
				fmt.Fprint(h, "b", n, i)
			}
			for k, n := range m {
				fmt.Fprint(h, k, n)
			}
		}
		close(end)
		all.Wait()
		mu.Lock()
		defer mu.Unlock()
		h.Sum(sum[:0])
	})
	return sum
}

// TestTheRuntimeIsHeldStill shows what a seed rests on: the same one makes the runtime choose the same, another one makes it choose otherwise.
func TestTheRuntimeIsHeldStill(t *testing.T) {
	if !pinned.Pinned {
		t.Skip("the runtime is not held still; cmd/simulate builds a program where it is")
	}
	require.Equal(t, shuffled(t, 1), shuffled(t, 1))
	require.NotEqual(t, shuffled(t, 1), shuffled(t, 2))
}

// TestANodeHasAClockOfItsOwn steps a wall clock, which durations and the clock since boot do not see, and which goroutines inherit.
func TestANodeHasAClockOfItsOwn(t *testing.T) {
	if !pinned.Pinned {
		t.Skip("the runtime is not held still; cmd/simulate builds a program where it is")
	}
	synctest.Test(t, func(t *testing.T) {
		c := &pinned.Clock{}
		boot, before := boottime.Now(), time.Now()
		pinned.Use(c)
		c.Offset = int64(time.Hour)
		require.Equal(t, time.Hour, time.Now().Round(0).Sub(before.Round(0)))
		require.Zero(t, time.Since(before))
		require.Zero(t, boottime.Now()-boot)
		there := make(chan time.Time)
		go func() { there <- time.Now().Round(0) }()
		require.Equal(t, time.Hour, (<-there).Sub(before.Round(0)))
	})
}
