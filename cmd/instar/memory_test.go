package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMemoryIsGivenBackWhenCalm(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	calm := heapUse{allocated: 1000 * mb, live: 100 * mb, held: 400 * mb}
	for _, c := range []struct {
		what   string
		now    heapUse
		before uint64
		want   bool
	}{
		{"calm, and most of it is spare", calm, 990 * mb, true},
		{"under load", calm, 900 * mb, false},
		{"a reserve as large as what is in use", heapUse{1000 * mb, 100 * mb, 200 * mb}, 1000 * mb, false},
		{"small", heapUse{1000 * mb, 10 * mb, 40 * mb}, 1000 * mb, false},
		{"small, after a burst", heapUse{1000 * mb, 10 * mb, 90 * mb}, 1000 * mb, true},
	} {
		require.Equal(t, c.want, c.now.spare(heapUse{allocated: c.before}, 10*time.Second), c.what)
	}
}

func TestTheRuntimeTellsItsHeap(t *testing.T) {
	t.Parallel()
	u := readHeap()
	require.Positive(t, u.allocated)
	require.Positive(t, u.held)
	require.Less(t, u.held, uint64(1<<40))
}
