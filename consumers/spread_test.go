package consumers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n      int
		within time.Duration
		most   int
		rate   time.Duration
	}{
		{0, time.Hour, 200, 50},
		{100_000, time.Hour, 200, 50},
		{360_000, time.Hour, 200, 100},
		{10_000_000, time.Hour, 200, 200},
		{10_000, 0, 200, 200},
	} {
		require.Equal(t, time.Second/c.rate, Spread(c.n, c.within, c.most), c)
	}
}
