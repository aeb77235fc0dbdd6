package main

import (
	"context"
	"fmt"
	"time"
)

// curveOf prints how the costs grow with the number of instances.
func curveOf(ctx context.Context, o *options) error {
	if len(o.curve) == 0 {
		return nil
	}
	fmt.Printf("\n%12s %14s %14s %18s %16s %14s %10s\n", "instances", "registered/s", "found/s", "CPU per beat", "bytes/instance", "discover/s", "p99")
	for _, n := range o.curve {
		st, err := measure(ctx, o, n)
		if err != nil {
			return err
		}
		perBeat := time.Duration((st.beats - st.idle) / 100 * float64(time.Second) / st.perSecond)
		fmt.Printf("%12d %14.0f %14.0f %18s %16d %14.0f %10s\n", n, st.registered, st.complete, perBeat.Round(100*time.Nanosecond), st.resident, st.reads, st.p99)
	}
	return nil
}
