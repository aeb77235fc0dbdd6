package discovery

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/kv/index"
)

// lookEvery is how soon it is noticed that the catalog is behind.
const lookEvery = 250 * time.Millisecond

// freshness is whether the catalog is behind. Its zero value is not.
type freshness struct {
	since atomic.Int64 // when what is known was last known to hold, in ns of Unix time; 0 while it holds

	mu     sync.Mutex
	held   time.Time
	member bool // this node was one of the cluster
	apart  bool // and is not now
	turned chan struct{}
}

// Stale is 0 while the catalog is complete and hears from the bucket, and from the other nodes as far as [Options].Hears
// tells. Else what is answered is what was known last, and this is the time since it was last known to hold.
func (c *Catalog) Stale() time.Duration {
	since := c.fresh.since.Load()
	if since == 0 {
		return 0
	}
	return max(time.Since(time.Unix(0, since)), 1)
}

// Turned returns a channel that is closed when Stale begins to be 0, or ends to be.
func (c *Catalog) Turned() <-chan struct{} {
	c.fresh.mu.Lock()
	defer c.fresh.mu.Unlock()
	return c.fresh.turned
}

// look finds out again and again whether the catalog is behind.
func (c *Catalog) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if c.o.Hears != nil {
			hears := c.o.Hears()
			c.fresh.mu.Lock()
			c.fresh.apart = c.fresh.member && !hears // before it is a member at all, the bucket tells
			c.fresh.member = c.fresh.member || hears
			c.fresh.mu.Unlock()
		}
		c.judge()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// judge notes how the catalog stands. A node that is apart from the others may still hear a bucket: its own copy.
func (c *Catalog) judge() {
	complete := false
	select {
	case <-c.ready:
		complete = true
	default:
	}
	quiet := c.o.Instances.Lag().Quiet
	f := &c.fresh
	f.mu.Lock()
	defer f.mu.Unlock()
	behind, was := !complete || f.apart || quiet >= index.MaxQuiet, f.since.Load() != 0
	switch {
	case behind == was && behind:
		return
	case behind:
		f.since.Store(f.held.UnixNano())
	default:
		f.held = time.Now().Add(-quiet)
		f.since.Store(0)
	}
	if behind != was {
		close(f.turned)
		f.turned = make(chan struct{})
	}
}
