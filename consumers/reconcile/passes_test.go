package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A partition is passed over when this process has it for the first time, or again, and then once in an hour.
func TestAPartitionThatIsTakenOverIsPassedOver(t *testing.T) {
	t.Parallel()
	mine := map[int]bool{1: true}
	p := &Passes{Owns: func(n int) bool { return mine[n] }}
	require.True(t, p.begin())
	require.Equal(t, map[int]bool{1: true}, p.due)
	require.False(t, p.begin())
	mine[2] = true
	require.True(t, p.begin())
	require.Equal(t, map[int]bool{2: true}, p.due)
	mine[1] = false
	require.False(t, p.begin())
	mine[1] = true
	require.True(t, p.begin(), "another one has had it meanwhile")
	require.Equal(t, map[int]bool{1: true}, p.due)
	p.passed[2] -= passEvery + time.Second
	require.True(t, p.begin())
	require.Equal(t, map[int]bool{2: true}, p.due)
}
