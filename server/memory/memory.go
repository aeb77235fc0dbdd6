// Package memory gives back to the system what a process that has become calm does not use.
package memory

import (
	"context"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Under load the process keeps a large reserve of memory, so that it collects garbage seldom. When it has become calm it
// gives back what it does not use: machines that run many things are shared.
const (
	calmEvery = 10 * time.Second
	calmBelow = 8 << 20  // bytes allocated in a second; a thousand heartbeats allocate less
	spareMost = 32 << 20 // bytes that are kept in any case
)

// heapUse is what the runtime says of its memory.
type heapUse struct {
	allocated uint64 // since the start
	live      uint64 // found by the last collection
	held      uint64 // of the heap, garbage and room included, and not given back
}

func readHeap() heapUse {
	s := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(s)
	v := func(i int) uint64 {
		if s[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return s[i].Value.Uint64()
	}
	return heapUse{allocated: v(0), live: v(1), held: v(2) + v(3) + v(4)}
}

// reserve decides when to give back. After a burst what is in use falls for minutes, as windows close and caches empty, and
// only a collection finds that out: so there are a few, each after three times as long as the one before. Later ones come
// only when as much as is in use was allocated since: a collection costs time for what is in use, and so it costs little
// for what it gives back, however large the process is.
type reserve struct {
	before heapUse
	calm   int // ticks since the last one in which much was allocated
	next   int // tick of the calm at which memory is given back whatever there is
}

// lastCalm is the tick of a calm after which nothing is expected to fall any more: a quarter of an hour.
const lastCalm = 81

// due looks at how things are now, a tick after the last time.
func (r *reserve) due(now heapUse, took time.Duration) bool {
	allocated := now.allocated - r.before.allocated
	r.before = now
	if float64(allocated) > calmBelow*took.Seconds() {
		r.calm, r.next = 0, 1
		return false
	}
	r.calm++
	if r.next > 0 && r.calm >= r.next {
		if r.next *= 3; r.next > lastCalm {
			r.next = 0
		}
		return now.held > spareMost
	}
	return now.held > now.live+max(now.live, spareMost)
}

// GiveBack returns memory to the system whenever the process has become calm, until ctx ends.
func GiveBack(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(calmEvery)
	defer tick.Stop()
	r, at := reserve{before: readHeap(), next: 1}, time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now := readHeap()
		if r.due(now, time.Since(at)) {
			debug.FreeOSMemory()
			now := readHeap()
			log.Debug("returned memory to the system", "live", now.live, "held", now.held)
		}
		at = time.Now()
	}
}
