package consumers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
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

// A question that is lost with a leader is put again soon; one whose leader is slow has longer each time.
func TestPatiently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), 0
		slow := func(takes time.Duration) func(context.Context) error {
			return func(ctx context.Context) error {
				asked++
				select {
				case <-time.After(takes):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		require.NoError(t, Patiently(t.Context(), slow(2*time.Second)))
		require.Equal(t, 2, asked)
		require.Equal(t, streams.ReadWithin+2*time.Second, time.Since(began))
		began = time.Now()
		require.ErrorIs(t, Patiently(t.Context(), slow(time.Minute)), context.DeadlineExceeded)
		require.Equal(t, patience, time.Since(began))
		require.ErrorIs(t, Patiently(t.Context(), func(context.Context) error { return nats.ErrNoResponders }), nats.ErrNoResponders)
	})
}
