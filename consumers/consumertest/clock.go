package consumertest

import (
	"sync/atomic"
	"time"
)

// Clock is a clock that a test moves.
type Clock struct{ at atomic.Int64 }

func NewClock() *Clock {
	c := &Clock{}
	c.Move(time.Hour)
	return c
}

func (c *Clock) Now() time.Duration   { return time.Duration(c.at.Load()) }
func (c *Clock) Move(d time.Duration) { c.at.Add(int64(d)) }
