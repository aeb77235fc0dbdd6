package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/group/grouptest"
)

// What a service manager lets this program do is not passed on to what it runs.
func TestNoCapabilityIsPassedOn(t *testing.T) {
	t.Parallel()
	grouptest.Capable(t)
	c, out := shell("grep ^CapAmb: /proc/self/status")
	require.NoError(t, c.Run(t.Context()))
	require.Equal(t, "CapAmb:\t0000000000000000\n", out.String())
}
