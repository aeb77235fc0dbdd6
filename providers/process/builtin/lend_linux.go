package builtin

import "golang.org/x/sys/unix"

// lend lets a later control plane take the public socket back by pidfd_getfd(2), also where Yama allows that for
// descendants only. Without Yama it fails, and nothing is lost.
func lend() { _ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0) }
