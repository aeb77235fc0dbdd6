package index

import (
	"context"
	"fmt"
	"slices"
)

type waiter struct {
	rev  uint64
	done chan struct{}
}

// advance publishes that the index has reached rev. The lock is held.
func (ix *Index) advance(rev uint64) {
	ix.rev.Store(rev)
	for s := range ix.subs.drawn {
		s.signal()
	}
	if len(ix.waiters) == 0 {
		return
	}
	ix.waiters = slices.DeleteFunc(ix.waiters, func(w waiter) bool {
		if w.rev > rev {
			return false
		}
		close(w.done)
		return true
	})
}

// Wait blocks until every write up to the revision is in the index. A revision of another bucket, or one that was
// never written, is waited for until the context ends.
func (ix *Index) Wait(ctx context.Context, minRevision uint64) error {
	if ix.rev.Load() >= minRevision {
		return nil
	}
	ix.learn(minRevision)
	ix.mu.Lock()
	if ix.rev.Load() >= minRevision {
		ix.mu.Unlock()
		return nil
	}
	w := waiter{rev: minRevision, done: make(chan struct{})}
	ix.waiters = append(ix.waiters, w)
	ix.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		ix.mu.Lock()
		defer ix.mu.Unlock()
		ix.waiters = slices.DeleteFunc(ix.waiters, func(o waiter) bool { return o.done == w.done })
		return fmt.Errorf("kv: index of %s is at revision %d, not yet at %d: %w", ix.bucket, ix.rev.Load(), minRevision, ctx.Err())
	}
}

// WaitFor blocks until the key exists and its item satisfies is, and returns that item. It may miss an item that was
// replaced at once.
func (ix *Index) WaitFor(ctx context.Context, key string, is func(Item) bool) (Item, error) {
	for {
		sub := ix.Subscribe(Filter{Key: key}, 1)
		item, ok := ix.Get(key)
		if !ok || !is(item) {
			item, ok = sub.await(ctx, is)
		}
		sub.Close()
		if ok {
			return item, nil
		}
		if ctx.Err() != nil {
			return item, fmt.Errorf("kv: %s/%s did not come to be as waited for: %w", ix.bucket, key, ctx.Err())
		}
	}
}

// await returns the first item that satisfies is; none if the subscription or the context ends before.
func (s *Subscription) await(ctx context.Context, is func(Item) bool) (Item, bool) {
	for {
		select {
		case <-ctx.Done():
			return Item{}, false
		case c, ok := <-s.C:
			if !ok {
				return Item{}, false
			}
			if !c.Deleted && is(c.Item) {
				return c.Item, true
			}
		}
	}
}
