//go:build linux

package domains

import (
	"io/fs"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A server that may not have its port says what it takes, also to whom a service manager starts it again each second.
func TestAPortThatItMayNotHave(t *testing.T) {
	t.Parallel()
	if from, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err != nil || string(from) == "0\n" {
		t.Skip("everybody may have it here")
	}
	runtime.LockOSThread() // and never unlocked: it ends with the test
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	require.NoError(t, unix.Capget(&header, &data[0]))
	data[0].Effective &^= 1 << unix.CAP_NET_BIND_SERVICE
	require.NoError(t, unix.Capset(&header, &data[0]))
	_, err := listen(nil, "127.0.0.1:443")
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "CAP_NET_BIND_SERVICE")
}
