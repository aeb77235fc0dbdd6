package group

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What a service manager lets this program do is not passed on to what it runs.
func TestNoCapabilityIsPassedOn(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // and never unlocked: it ends with the test
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	require.NoError(t, unix.Capget(&header, &data[0]))
	data[0].Inheritable = data[0].Permitted & (1 << unix.CAP_NET_BIND_SERVICE)
	if unix.Capset(&header, &data[0]) != nil || unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_BIND_SERVICE, 0, 0) != nil {
		t.Skip("this test has no such capability")
	}
	c, out := shell("grep ^CapAmb: /proc/self/status")
	require.NoError(t, c.Run(t.Context()))
	require.Equal(t, "CapAmb:\t0000000000000000\n", out.String())
}
