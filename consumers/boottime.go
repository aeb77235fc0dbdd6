package consumers

import (
	"time"

	"golang.org/x/sys/unix"
)

var began = time.Now()

// sinceStart is the clock that tells how long something of this process takes. Nobody can set it either, and it stands still while the
// machine is suspended, as everything here does. It is never 0.
func sinceStart() time.Duration { return time.Since(began) + 1 }

// sinceBoot is the clock that lives are judged by. Nobody can set it, unlike the wall clock, and it goes on while the machine
// is suspended, unlike the one behind [time.Since]: a machine that wakes up knows that its time is over.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		panic("consumers: the kernel has no clock that counts from its start: " + err.Error()) // Linux has it since 2.6.39
	}
	return time.Duration(ts.Nano())
}
