package watch

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// What watches may cost: writing to a thousand sockets takes the processors that commands need. A byte costs what the kernel takes to
// copy it, and a write as much as perWrite bytes.
const (
	perCore  = 64 << 20 // bytes a second for each processor
	perWrite = 16 << 10
	slice    = 1 << 20 // what is spent at once
	pace     = 5 * time.Millisecond
)

// budget is what all fan-outs together may write. What was not used for a moment may be used at once, so that a change after silence is not held up.
type budget struct {
	mu   sync.Mutex
	left float64
	at   time.Time
}

// spend takes from the budget and returns how long to wait until that is paid.
func (b *budget) spend(n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, perSecond := time.Now(), float64(perCore*runtime.GOMAXPROCS(0))
	b.left = min(b.left+now.Sub(b.at).Seconds()*perSecond, perSecond/2) - float64(n)
	b.at = now
	if b.left >= 0 {
		return 0
	}
	return time.Duration(-b.left / perSecond * float64(time.Second))
}

// pause reports false when the context ends before.
func pause(ctx context.Context, t *time.Timer, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t.Reset(d)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
