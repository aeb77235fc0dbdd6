package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// figures are what one closed-loop run measured.
type figures struct {
	clients int
	done    int
	took    time.Duration
	cpu     time.Duration // of the whole process: server, engine, API and load generator
	garbage uint64        // bytes that it allocated, nearly all of which are garbage soon
	lats    []time.Duration
}

func (f figures) rate() float64 { return float64(f.done) / f.took.Seconds() }

func (f figures) quantile(q float64) time.Duration {
	if len(f.lats) == 0 {
		return 0
	}
	return f.lats[min(int(q*float64(len(f.lats))), len(f.lats)-1)]
}

func (f figures) String() string {
	return fmt.Sprintf("%4d clients %9.0f/s   p50 %8s   p99 %8s   cpu %6s and %4.1f KB of garbage per transition",
		f.clients, f.rate(), round(f.quantile(0.5)), round(f.quantile(0.99)), round(f.cpu/time.Duration(max(f.done, 1))), float64(f.garbage)/1000/float64(max(f.done, 1)))
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// closed runs so many clients, each with one request under way, for the duration after a warm-up. do gets the number
// of the client and of its request.
func closed(ctx context.Context, clients int, duration time.Duration, do func(ctx context.Context, client, n int) error) (figures, error) {
	var measuring atomic.Bool
	var stop atomic.Bool
	lats := make([][]time.Duration, clients)
	errs := make([]error, clients)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for n := 0; !stop.Load(); n++ {
				started := time.Now()
				if err := do(ctx, c, n); err != nil {
					errs[c] = err
					return
				}
				if measuring.Load() {
					lats[c] = append(lats[c], time.Since(started))
				}
			}
		})
	}
	time.Sleep(duration / 4)
	measuring.Store(true)
	started, cpu, garbage := time.Now(), processCPU(), allocated()
	time.Sleep(duration)
	measuring.Store(false)
	f := figures{clients: clients, took: time.Since(started), cpu: processCPU() - cpu, garbage: allocated() - garbage}
	stop.Store(true)
	all.Wait()
	for c := range clients {
		if errs[c] != nil {
			return f, fmt.Errorf("client %d: %w", c, errs[c])
		}
		f.lats = append(f.lats, lats[c]...)
	}
	f.done = len(f.lats)
	slices.Sort(f.lats)
	return f, nil
}

// processCPU is the user and system time of this process so far.
func processCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// allocated is how many bytes this process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// applied checks an answer.
func applied(raw []byte) error {
	if !bytes.Contains(raw, []byte(`"outcome":"applied"`)) {
		return fmt.Errorf("not applied: %s", raw)
	}
	return nil
}
