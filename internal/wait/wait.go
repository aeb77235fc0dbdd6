// Package wait waits, until it is time or somebody wants nothing any more.
package wait

import (
	"context"
	"time"
)

// For waits for a time, and reports false when ctx has ended before.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Pause is [For] that fails with ctx when that has ended before.
func Pause(ctx context.Context, d time.Duration) error {
	if For(ctx, d) {
		return nil
	}
	return ctx.Err()
}

// EachRequest is ctx without its deadline, though it ends when ctx does. The client of JetStream waits for the answer to a request until the deadline that a context has, and for its default timeout
// where there is none: a request that was lost with its connection is given up after that, however much time ctx has. It is for what makes one request, or some after each other.
func EachRequest(ctx context.Context) context.Context { return undated{ctx} }

type undated struct{ context.Context }

func (undated) Deadline() (end time.Time, ok bool) { return end, false }

// Backoff waits before the next try: 50 ms before the one after try 0, doubled with each, up to 2 s. It reports false when ctx has ended.
func Backoff(ctx context.Context, try int) bool {
	return For(ctx, min(50*time.Millisecond<<min(try, 10), 2*time.Second))
}

// BackoffUnless is [Backoff] that also reports false when leave was closed; nil never is.
func BackoffUnless(ctx context.Context, leave <-chan struct{}, try int) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if leave != nil {
		go func() {
			select {
			case <-leave:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return Backoff(ctx, try)
}
