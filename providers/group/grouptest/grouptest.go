//go:build linux

// Package grouptest has the thread of a test pass a capability on, as a service manager does.
package grouptest

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Capable locks the thread of a test, which ends with it, and has it pass the capability for ports below 1024 on to what it starts. It skips where the test has no such capability.
// What it returns reports whether the thread has it itself.
func Capable(t *testing.T) func() bool {
	t.Helper()
	runtime.LockOSThread() // and never unlocked
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	require.NoError(t, unix.Capget(&header, &data[0]))
	data[0].Inheritable = data[0].Permitted & (1 << unix.CAP_NET_BIND_SERVICE)
	if unix.Capset(&header, &data[0]) != nil || unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_BIND_SERVICE, 0, 0) != nil {
		t.Skip("this test has no such capability")
	}
	return func() bool {
		require.NoError(t, unix.Capget(&header, &data[0]))
		return data[0].Effective&(1<<unix.CAP_NET_BIND_SERVICE) != 0
	}
}
