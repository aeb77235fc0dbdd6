package consumers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// What fails ends the rest, which would be done again anyway.
func TestAnErrorEndsWhatIsDoneInParallel(t *testing.T) {
	t.Parallel()
	var begun atomic.Int64
	broken := errors.New("broken")
	err := InParallel(t.Context(), make([]int, 1000), func(ctx context.Context, _ int) error {
		if begun.Add(1) == 10 {
			return broken
		}
		<-ctx.Done()
		return ctx.Err()
	})
	require.Equal(t, broken, err)
	require.LessOrEqual(t, begun.Load(), int64(64+10))

	begun.Store(0)
	require.NoError(t, InParallel(t.Context(), make([]int, 1000), func(context.Context, int) error { begun.Add(1); return nil }))
	require.EqualValues(t, 1000, begun.Load())
}
