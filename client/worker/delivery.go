package worker

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// errHeld says that the server has heard nothing for so long that it may have given a task to another worker.
var errHeld = errors.New("the worker was held up or cut off, and another one may have the task by now")

// delivery is the message of a task, and when the server was last known to have it as one of this worker. It is for one goroutine at a time.
type delivery struct {
	*nats.Msg
	wait  time.Duration // after which the server gives it to another one
	alive time.Time
	lost  bool // and stays so: what this worker says from now on is about the delivery that another one has
}

// lives says that the server has answered what was asked at that time, behind a sign of life.
func (d *delivery) lives(at time.Time) {
	if d.lost = d.lost || late(d.alive, d.wait); !d.lost {
		d.alive = at
	}
}

// giveBack has the server give the task to another one, at once or later. Where that may have happened by itself it says nothing: the server takes a NAK of any delivery of a message, so the task
// would be taken from who does it.
func (d *delivery) giveBack(delay time.Duration) error {
	if d.lost || late(d.alive, d.wait) {
		return errHeld
	}
	return d.NakWithDelay(delay)
}

// late reports whether a wait is nearly over, by the clock that has gone on more: one stands still while the machine is suspended, and the other can be set.
func late(since time.Time, wait time.Duration) bool {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0))) > wait*3/4
}
