// Package boottime is a clock that nobody can set, and that goes on while the machine is suspended.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine was started. Unlike the wall clock nobody can set it; unlike the clock behind [time.Since] it goes on
// while the machine is suspended: a machine that wakes up knows that its time is over.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		panic("boottime: the kernel has no clock that counts from its start: " + err.Error()) // Linux has it since 2.6.39
	}
	return time.Duration(ts.Nano())
}
