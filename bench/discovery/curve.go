package main

import (
	"context"
	"fmt"
	"time"
)

// curveOf prints how the costs grow with the number of instances: each of them should cost the same in any crowd.
func curveOf(ctx context.Context, o *options) error {
	if len(o.curve) == 0 {
		return nil
	}
	fmt.Printf("\n%10s %13s %9s %13s %10s %11s %9s %11s %9s %8s\n", "instances", "registered/s", "found/s", "CPU for each", "CPU/beat", "discover/s", "CPU each", "p99", "B loaded", "B calm")
	for _, n := range o.curve {
		st, err := measure(ctx, o, n, true)
		if err != nil {
			return err
		}
		perBeat := time.Duration((st.beats - st.idle) / 100 * float64(time.Second) / st.perSecond)
		fmt.Printf("%10d %13.0f %9.0f %13s %10s %11.0f %9s %11s %9d %8d\n", n, st.registered, st.complete, st.perRegistration.Round(time.Microsecond), perBeat.Round(100*time.Nanosecond),
			st.reads, st.perRead.Round(100*time.Nanosecond), st.p99, st.resident, st.resting)
	}
	return nil
}
