package builtin

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// apart gives the calling thread, which becomes the program, namespaces of its own.
func apart() error {
	return os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWIPC|unix.CLONE_NEWUTS))
}

// CanApart fails where programs cannot be apart: for who is not root, or in a container that may not.
func CanApart() error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		failed <- apart()
	}()
	return <-failed
}
