package memory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const mb = 1 << 20

func TestMemoryIsGivenBackWhenCalm(t *testing.T) {
	t.Parallel()
	r := reserve{}
	use := heapUse{live: 100 * mb, held: 190 * mb}
	tick := func(allocated uint64) bool {
		use.allocated += allocated
		return r.due(use, calmEvery)
	}
	require.False(t, tick(500*mb), "under load")
	var given []int
	for n := range 200 {
		if tick(10 * mb) {
			given = append(given, n+1)
		}
	}
	require.Equal(t, []int{1, 3, 9, 27, 81}, given, "less and less often, and then no more")
	use.held = 210 * mb
	require.True(t, tick(10*mb), "as much again was allocated")
	use.held = 150 * mb
	require.False(t, tick(10*mb))
	require.False(t, tick(500*mb))
	require.True(t, tick(10*mb), "the calm after another burst")
}

func TestASmallProcessKeepsItsMemory(t *testing.T) {
	t.Parallel()
	r := reserve{}
	for range 10 {
		require.False(t, r.due(heapUse{live: 10 * mb, held: 30 * mb}, time.Second))
	}
}

func TestTheRuntimeTellsItsHeap(t *testing.T) {
	t.Parallel()
	u := readHeap()
	require.Positive(t, u.allocated)
	require.Positive(t, u.held)
	require.Less(t, u.held, uint64(1<<40))
}
