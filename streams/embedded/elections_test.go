package embedded

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The server's own variables, and not others of the same name.
func TestElectionsRunTwiceAsFast(t *testing.T) {
	t.Parallel()
	require.Equal(t, []time.Duration{500 * time.Millisecond, 2 * time.Second, 4500 * time.Millisecond, 5 * time.Second, 5 * time.Second},
		[]time.Duration{heartbeatInterval, minElectionTimeout, maxElectionTimeout, lostQuorumInterval, lostQuorumCheck},
		"half of what the server begins with: another version of it may begin with something else")
}
