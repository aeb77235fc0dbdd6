package observer

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
)

// firstStep is the time between the first two early looks; it doubles up to the time between sweeps of transitional states.
const firstStep = 25 * time.Millisecond

// Buffered is how many keys may wait in the subscription to what is in a transitional state.
const Buffered = 4096

// passage is a stay in a transitional state, with its early looks. What the observer itself finds does not begin them anew: else a world that shows something new at each look would
// be looked at without a pause.
type passage struct {
	since   time.Time
	pending bool // an effect is under way: its result begins the early looks
	stop    context.CancelFunc
	looked  time.Time // last, for whatever reason; the observer's lock guards it
}

// hasten looks early at entities in transitional states: most worlds have changed soon after the effect that was to change them, and not all of them tell.
func (o *Observer) hasten(ctx context.Context) {
	states := o.transit()
	if len(states) == 0 {
		return
	}
	var all sync.WaitGroup
	defer all.Wait()
	for ctx.Err() == nil {
		changes := o.Index.Subscribe(index.Filter{States: states}, Buffered)
		o.follow(ctx, &all, changes.C)
		changes.Close()
	}
}

// follow begins early looks until ctx ends or the changes are lost. Sweeps see what was lost.
func (o *Observer) follow(ctx context.Context, all *sync.WaitGroup, changes <-chan index.Change) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.mu.Lock()
	o.passages = map[string]*passage{}
	o.mu.Unlock()
	for {
		var c index.Change
		var ok bool
		select {
		case c, ok = <-changes:
		case <-ctx.Done():
		}
		if !ok {
			return
		}
		key := c.Item.Key
		o.mu.Lock()
		was := o.passages[key]
		o.mu.Unlock()
		s, known := o.Machine.State(c.Item.State)
		if c.Deleted || !known || s.Poll == nil || !s.Transitional {
			if was != nil {
				was.stop()
				o.mu.Lock()
				delete(o.passages, key)
				o.mu.Unlock()
			}
			continue
		}
		var e struct {
			Effects map[string]machines.Attempt `json:"effects"`
		}
		if json.Unmarshal(c.Value, &e) != nil {
			continue // parked
		}
		now := &passage{since: c.Item.Since, pending: len(e.Effects) > 0}
		if was != nil {
			if now.pending == was.pending && now.since.Equal(was.since) {
				continue
			}
			was.stop()
		}
		var steps context.Context
		steps, now.stop = context.WithCancel(ctx)
		o.mu.Lock()
		if was != nil {
			now.looked = was.looked
		}
		o.passages[key] = now
		o.mu.Unlock()
		if !now.pending {
			all.Go(func() { o.early(steps, key, now) })
		}
	}
}

// early looks at once, and then with growing steps until sweeps are as frequent. What was looked at within half a step, because its gateway tells, is left to that.
func (o *Observer) early(ctx context.Context, key string, p *passage) {
	o.hurry(key, p, firstStep)
	for step := firstStep; step < o.transitEvery && wait.For(ctx, step); step *= 2 {
		o.hurry(key, p, step)
	}
}

func (o *Observer) hurry(key string, p *passage, step time.Duration) {
	o.mu.Lock()
	looked := time.Since(p.looked) < step/2
	o.mu.Unlock()
	if looked {
		return
	}
	select {
	case o.queue <- look{key, false}:
	default: // early looks hold up neither polls nor what was noticed; the next one, or a sweep, sees it
	}
}
