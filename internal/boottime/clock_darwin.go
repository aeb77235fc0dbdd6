package boottime

import "golang.org/x/sys/unix"

// clock goes on while the machine sleeps there, unlike that of the same name on Linux.
const clock = unix.CLOCK_MONOTONIC
