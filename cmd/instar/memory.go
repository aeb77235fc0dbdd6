package main

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

// spare reports whether so much of the memory is not needed that a collection for its sake is worth it: as much as is in
// use, after a while in which little was allocated. A collection costs time for what is in use, and comes again only when
// as much was allocated meanwhile: so it costs little for what it gives back, however large the process is.
func (u heapUse) spare(before heapUse, took time.Duration) bool {
	if float64(u.allocated-before.allocated) > calmBelow*took.Seconds() {
		return false
	}
	return u.held > u.live+max(u.live, spareMost)
}

// giveBack returns memory to the system whenever the process has become calm, until ctx ends.
func giveBack(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(calmEvery)
	defer tick.Stop()
	before, at, kept := readHeap(), time.Now(), uint64(0)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now := readHeap()
		// What the last time could not give back lies between what is in use, and cannot be given back now.
		if took := time.Since(at); now.spare(before, took) && now.held > kept+spareMost {
			debug.FreeOSMemory()
			now = readHeap()
			kept = now.held
			log.Debug("memory was given back", "live", now.live, "held", now.held)
		}
		before, at = now, time.Now()
	}
}
