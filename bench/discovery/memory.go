package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

// memory measures what an instance costs when nothing happens: the growth of the process from a fifth of the instances
// to all of them, each time after it has come to rest, with the settings that it has for anybody. Resident is what the
// system says, all in all; in use is what the last collection found, which is what the gaps between it are not part of.
func memory(ctx context.Context, o *options) error {
	fmt.Printf("\nmemory, from %d to %d instances at rest\n", o.instances/5, o.instances)
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer s.stop()
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	var at, live [2]int
	var f *fleet
	for i, n := range []int{o.instances / 5, o.instances} {
		if f, _, err = register(ctx, s, crowd{n, o.perOne, "30m", "10m", nil}); err != nil { // those that are there begin anew
			return err
		}
		beating, cancel := context.WithCancel(ctx)
		go f.beat(beating, nc, 3*time.Second)
		_, err := f.found(ctx)
		cancel()
		if err != nil {
			return err
		}
		// Longer than a registration's timer lives, than idle entities stay in memory, and windows and caches.
		if at[i], live[i], err = s.rest(ctx, 4*time.Minute, 5*time.Minute); err != nil {
			return err
		}
		if err := s.profile(ctx, o, fmt.Sprintf("memory-%d.pprof", n), mallocs)(); err != nil {
			return err
		}
	}
	value, err := f.valueSize(ctx, nc)
	if err != nil {
		return err
	}
	per := func(v [2]int) int { return (v[1] - v[0]) / (o.instances - o.instances/5) }
	row("stored value of an instance", fmt.Sprintf("%d bytes", value), "")
	row("memory per instance, in use", fmt.Sprintf("%d bytes: %d beyond the stored value", per(live), per(live)-value), "under 4,096 beyond the stored value")
	row("memory per instance, resident", fmt.Sprintf("%d bytes: %d beyond the stored value", per(at), per(at)-value), "")
	return nil
}

// rest waits until the memory of the process does not fall any more, and returns what is resident then, and the least that
// the heap held meanwhile: what was left by a collection. It takes at least so long, and at most.
func (s *server) rest(ctx context.Context, short, long time.Duration) (resident, live int, err error) {
	least, since := math.MaxInt, time.Now()
	live = math.MaxInt
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for began := time.Now(); ; {
		if resident, err = s.Memory(); err != nil {
			return 0, 0, err
		}
		heap, err := s.metric(ctx, "go_memstats_heap_alloc_bytes")
		if err != nil {
			return 0, 0, err
		}
		if live = min(live, heap); resident < least-least/100 {
			least, since = resident, time.Now()
		}
		if took := time.Since(began); took > short && (time.Since(since) > 20*time.Second || took > long) {
			return resident, live, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}
