package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var took []time.Duration
		for _, try := range []int{0, 1, 5, 6, 100} {
			began := time.Now()
			require.True(t, Backoff(ctx, try))
			took = append(took, time.Since(began))
		}
		require.Equal(t, []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 1600 * time.Millisecond, 2 * time.Second, 2 * time.Second}, took)
		began := time.Now()
		require.False(t, For(ctx, time.Hour))
		require.Less(t, time.Since(began), time.Minute)
		require.ErrorIs(t, Pause(ctx, time.Hour), context.DeadlineExceeded)
		began = time.Now()
		require.NoError(t, Pause(t.Context(), time.Second))
		require.Equal(t, time.Second, time.Since(began))
	})
}
