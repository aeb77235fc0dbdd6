package group

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitEnd returns when a child has ended, which is not reaped. One that has ended already is not found.
func awaitEnd(pid int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(queue) }()
	end := []unix.Kevent_t{{Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT}} // the id of a process
	for {
		_, err := unix.Kevent(queue, end, make([]unix.Kevent_t, 1), nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

const memoryLimited = false
