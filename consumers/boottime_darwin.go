package consumers

import "golang.org/x/sys/unix"

// bootClock goes on while the machine sleeps there, unlike that of the same name on Linux.
const bootClock = unix.CLOCK_MONOTONIC
