package poison

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A suspected command that hangs keeps its turn for a while, not until its process is ended for that.
func TestATurnEnds(t *testing.T) {
	t.Parallel()
	c := make(chan struct{}, 1)
	hangs, waits := Turn{C: c, For: 20 * time.Millisecond}, Turn{C: c, For: 20 * time.Millisecond}
	take := func(turn *Turn) {
		t.Helper()
		taken, err := turn.Take(t.Context(), nil)
		require.NoError(t, err)
		require.True(t, taken)
	}
	take(&hangs)
	take(&hangs) // its next command, in the same turn
	take(&waits)
	hangs.End()
	waits.End()
	require.Empty(t, c)
	take(&hangs)
	require.Len(t, c, 1, "it ends once")
	left := make(chan struct{})
	close(left)
	taken, err := waits.Take(t.Context(), left)
	require.NoError(t, err)
	require.False(t, taken)
}
