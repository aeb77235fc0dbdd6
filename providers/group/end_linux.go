package group

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitEnd returns when a child has ended, which is not reaped.
func awaitEnd(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

const memoryLimited = true
