package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

// memory measures what an instance costs when nothing happens: the growth of the process from a fifth of the instances
// to all of them, each time after it has come to rest. The collector is told to keep little in reserve (GOGC=10), so that
// the figure is of what is used; what the server keeps for any load is there with the first fifth.
func memory(ctx context.Context, o *options) error {
	fmt.Printf("\nmemory, from %d to %d instances at rest\n", o.instances/5, o.instances)
	s, err := startWith(ctx, []string{"GOGC=10"}, o)
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
		if f, _, err = register(ctx, s, n, o.perOne, "30m", "10m"); err != nil { // those that are there begin anew
			return err
		}
		beating, cancel := context.WithCancel(ctx)
		go f.beat(beating, nc, 3*time.Second)
		_, err := f.found(ctx)
		cancel()
		if err != nil {
			return err
		}
		if at[i], err = s.rest(ctx); err != nil {
			return err
		}
		if live[i], err = s.metric(ctx, "go_memstats_heap_alloc_bytes"); err != nil {
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

// rest waits until the memory of the process does not fall any more, and returns it.
func (s *server) rest(ctx context.Context) (int, error) {
	least, since := math.MaxInt, time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for began := time.Now(); ; {
		now, err := s.memory()
		if err != nil {
			return 0, err
		}
		if now < least-least/100 {
			least, since = now, time.Now()
		}
		if time.Since(began) > 150*time.Second && (time.Since(since) > 20*time.Second || time.Since(began) > 4*time.Minute) {
			return now, nil // longer than a registration's timer lives, than idle entities stay, and caches
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
