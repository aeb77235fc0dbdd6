package cluster

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A slow machine does not end the partitions of a process that is alone, and a successor does not miss what a suspended one has asked for.
func TestRequestsForCommandsExpireBeforeTheKeyOfTheirNode(t *testing.T) {
	t.Parallel()
	require.Equal(t, 10*time.Second, (&Node{Life: 15 * time.Second}).PullExpiry())
	for _, life := range []time.Duration{1500 * time.Millisecond, 2 * time.Second, DefaultLife, math.MaxInt64 / 2} {
		require.Less(t, (&Node{Life: life}).PullExpiry(), life)
	}
	require.Less(t, (*Node)(nil).PullExpiry(), DefaultLife)
}
