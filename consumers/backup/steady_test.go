package backup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A request whose answer was lost is asked again, and does not wait until the time of the whole restore is over.
func TestWhatIsNotAnsweredIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began, asked := time.Now(), 0
		require.NoError(t, steady(ctx, func(ctx context.Context) error {
			if asked++; asked > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}))
		require.Equal(t, 2, asked)
		require.Less(t, time.Since(began), silence)
	})
}
