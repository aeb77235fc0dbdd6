package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/bench/internal/rig"
)

// contender is what is measured. All of its processes are ended by close.
type contender interface {
	// enqueue stores so many jobs, from first on, and returns when the server has taken them. Where at is not zero, the workers print how long after it each was started.
	enqueue(ctx context.Context, first, n int, at time.Time) error
	// done is how many have succeeded since the beginning.
	done(ctx context.Context) (int, error)
	// check fails if jobs were lost or done twice.
	check(ctx context.Context, jobs int) error
	processes() (server, worker *rig.Process)
	database() int // its process; 0 is none
	close()
}

// figures of one run of a contender.
type figures struct {
	rate                             float64
	server, worker, database, loader time.Duration // of CPU, for a job
	p50, p99                         time.Duration // from enqueuing to the start, while nothing else is done
}

func (f figures) without() time.Duration { return f.server + f.worker + f.database }

func (o *options) measure(ctx context.Context, open func(context.Context) (contender, error)) (f figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	c, err := open(ctx)
	if c != nil {
		defer c.close()
	}
	if err != nil {
		return f, err
	}
	warm := max(o.jobs/10, 100)
	if err := o.jobsDone(ctx, c, 0, warm); err != nil {
		return f, err
	}
	if err := o.latencies(ctx, c, warm, &f); err != nil {
		return f, err
	}
	first := warm + o.probes
	before, err := spent(c)
	if err != nil {
		return f, err
	}
	began := time.Now()
	if err := o.jobsDone(ctx, c, first, o.jobs); err != nil {
		return f, err
	}
	took := time.Since(began)
	after, err := spent(c)
	if err != nil {
		return f, err
	}
	f.rate = float64(o.jobs) / took.Seconds()
	for i, to := range []*time.Duration{&f.server, &f.worker, &f.database, &f.loader} {
		*to = (after[i] - before[i]) / time.Duration(o.jobs)
	}
	return f, c.check(ctx, first+o.jobs)
}

// jobsDone enqueues jobs and waits until all have succeeded.
func (o *options) jobsDone(ctx context.Context, c contender, first, n int) error {
	if err := c.enqueue(ctx, first, n, time.Time{}); err != nil {
		return fmt.Errorf("cannot enqueue: %w", err)
	}
	return until(ctx, func() (bool, error) {
		have, err := c.done(ctx)
		return have >= first+n, err
	})
}

// latencies starts jobs one at a time, each a while after the last one has ended.
func (o *options) latencies(ctx context.Context, c contender, first int, f *figures) error {
	_, worker := c.processes()
	for i := range o.probes {
		if err := c.enqueue(ctx, first+i, 1, time.Now()); err != nil {
			return err
		}
		if err := until(ctx, func() (bool, error) { return strings.Count(worker.Log.String(), "started after ") > i, nil }); err != nil {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	var all []time.Duration
	lines := bufio.NewScanner(strings.NewReader(worker.Log.String()))
	for lines.Scan() {
		if _, us, ok := strings.Cut(lines.Text(), "started after "); ok {
			n, err := strconv.Atoi(us)
			if err != nil {
				return err
			}
			all = append(all, time.Duration(n)*time.Microsecond)
		}
	}
	slices.Sort(all)
	f.p50, f.p99 = all[len(all)/2], all[len(all)*99/100]
	return until(ctx, func() (bool, error) {
		have, err := c.done(ctx)
		return have >= first+o.probes, err
	})
}

// spent is the CPU time of server, worker, database and load generator.
func spent(c contender) (s [4]time.Duration, err error) {
	server, worker := c.processes()
	errs := make([]error, 4)
	if server != nil {
		s[0], errs[0] = server.CPU()
	}
	s[1], errs[1] = worker.CPU()
	if pid := c.database(); pid != 0 {
		s[2], errs[2] = rig.Family(pid)
	}
	s[3], errs[3] = rig.Self()
	return s, errors.Join(errs...)
}

// until looks again and again, at times that cost what is measured little.
func until(ctx context.Context, done func() (bool, error)) error {
	for wait := 2 * time.Millisecond; ; wait = min(wait*5/4, 50*time.Millisecond) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return fmt.Errorf("it does not come to its end: %w", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// table has the medians of all runs, in the order in which they came first.
type table struct {
	names []string
	of    map[string][]figures
}

func (t *table) add(name string, f figures) {
	if t.of == nil {
		t.of = map[string][]figures{}
	}
	if t.of[name] == nil {
		t.names = append(t.names, name)
	}
	t.of[name] = append(t.of[name], f)
}

func (t *table) print() {
	fmt.Printf("\n%-30s %8s %10s %10s %10s %10s %10s %10s %10s\n", "", "jobs/s", "CPU/job", "server", "worker", "database", "(load)", "start p50", "start p99")
	for _, name := range t.names {
		span := func(get func(figures) time.Duration) time.Duration {
			return time.Duration(rig.Median(t.of[name], func(f figures) float64 { return float64(get(f)) }))
		}
		us := func(get func(figures) time.Duration) string { return fmt.Sprint(span(get).Microseconds(), " us") }
		ms := func(get func(figures) time.Duration) string { return fmt.Sprintf("%.1f ms", span(get).Seconds()*1000) }
		fmt.Printf("%-30s %8.0f %10s %10s %10s %10s %10s %10s %10s\n", name, rig.Median(t.of[name], func(f figures) float64 { return f.rate }), us(figures.without),
			us(func(f figures) time.Duration { return f.server }), us(func(f figures) time.Duration { return f.worker }), us(func(f figures) time.Duration { return f.database }),
			us(func(f figures) time.Duration { return f.loader }), ms(func(f figures) time.Duration { return f.p50 }), ms(func(f figures) time.Duration { return f.p99 }))
	}
	fmt.Println("load at the end:", load())
}
