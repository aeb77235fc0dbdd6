package poison

import (
	"cmp"
	"context"
	"time"
)

// turnFor is how long a suspected command is waited for by others: one that kills does so at once, and one that hangs would keep all
// of them until the process is ended for that.
const turnFor = 10 * time.Second

// Turn is the turn of one who does what is suspected. Nobody else in the process begins anything suspected meanwhile, so nothing is
// counted that another one has ended the process beside.
type Turn struct {
	C     chan struct{} // of the process, see [consumers.Deps]
	For   time.Duration // until it ends by itself; 0 is 10 s
	timer *time.Timer
}

// Take waits until nobody else has the turn, and begins its time; or begins it anew. It reports false when leave is closed before.
func (t *Turn) Take(ctx context.Context, leave <-chan struct{}) (bool, error) {
	within := cmp.Or(t.For, turnFor)
	if t.timer != nil && t.timer.Stop() {
		t.timer.Reset(within)
		return true, nil
	}
	select {
	case t.C <- struct{}{}:
		t.timer = time.AfterFunc(within, func() { <-t.C })
		return true, nil
	case <-leave:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// End lets others begin, if the turn is taken.
func (t *Turn) End() {
	if t.timer != nil && t.timer.Stop() {
		<-t.C
	}
	t.timer = nil
}
