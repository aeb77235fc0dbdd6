// Command tasks measures tasks that do nothing, beside jobs of River (github.com/riverqueue/river) that do nothing: the program is a process of its own, as is Postgres,
// and so are the workers of both. It prints how many run per second, what one costs each process by the system's account, how soon an idle server starts one, and
// what many queued ones cost. It ends with an error if a task is lost or done twice.
//
//	go -C bench run ./tasks -jobs 20000 -runs 3
//
// main.go has the options and the order of things, instar.go and river.go what is measured, work.go the workers, measure.go how, and queued.go memory and start-up.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bcc94042/instar/bench/internal/rig"
)

type options struct {
	binary, against string
	durabilities    []string
	jobs, probes    int
	queued          int
	repositories    int
	workers         int
	riverWorkers    int
	runs            int
	river           bool
	dir             string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench/tasks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	durabilities := flag.String("durabilities", "interval,fsync", "durabilities of the server: interval, fsync, os")
	flag.StringVar(&o.binary, "binary", "", "measure this `program` instead of one that is built from the source")
	flag.StringVar(&o.against, "against", "", "a second `program`, for example of the commit before, measured in turn with the first")
	flag.IntVar(&o.jobs, "jobs", 10000, "jobs of a run")
	flag.IntVar(&o.probes, "probes", 200, "jobs that are started one at a time, for their latency")
	flag.IntVar(&o.queued, "queued", 100_000, "tasks that are queued for memory and start-up; 0 leaves that out")
	flag.IntVar(&o.repositories, "repositories", 100, "that the tasks are spread over")
	flag.IntVar(&o.workers, "workers", 200, "tasks that run at a time")
	flag.IntVar(&o.riverWorkers, "river-workers", 0, "jobs of River that run at a time; as many as tasks by default. River fetches each 100 ms as many as are free, so its rate is at most ten times this number")
	flag.IntVar(&o.runs, "runs", 1, "times that each row is measured; the table has the medians")
	flag.BoolVar(&o.river, "river", true, "measure River, too")
	work := flag.String("work", "", "only work for the server at this `address`, instar or river (used by the benchmark)")
	flag.Parse()
	if *work != "" {
		return workFor(ctx, *work, o.workers)
	}
	o.riverWorkers = cmp.Or(o.riverWorkers, o.workers)
	o.durabilities = strings.Split(*durabilities, ",")
	if o.jobs < 1 || o.probes < 1 || o.runs < 1 || o.repositories < 1 || o.workers < 1 || o.riverWorkers < 1 || o.queued < 0 {
		return errors.New("-jobs, -probes, -runs, -repositories, -workers and -river-workers have to be above 0")
	}
	return o.all(ctx)
}

func (o *options) all(ctx context.Context) (err error) {
	if o.dir, err = os.MkdirTemp("", "instar-bench-tasks"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	if err := os.Chmod(o.dir, 0o711); err != nil { // Postgres may run as another user
		return err
	}
	if o.binary, err = rig.Program(ctx, o.binary, o.dir); err != nil {
		return err
	}
	fmt.Printf("bench/tasks: %s, %d CPUs, load %s; %d jobs that do nothing, %d at a time (River %d), in %d repositories; servers and workers are processes of their own, the load generator shares the machine\n",
		runtime.Version(), runtime.NumCPU(), load(), o.jobs, o.workers, o.riverWorkers, o.repositories)
	t := &table{}
	for n := range o.runs {
		if err := o.round(ctx, t, n); err != nil {
			return err
		}
	}
	t.print()
	if o.queued == 0 {
		return nil
	}
	return o.backlog(ctx)
}

// round measures each contender once; the order changes with each round, so that none always comes first.
func (o *options) round(ctx context.Context, t *table, n int) error {
	type start struct {
		name string
		open func(context.Context) (contender, error)
	}
	var all []start
	for _, d := range o.durabilities {
		all = append(all, start{"instar, " + d, func(ctx context.Context) (contender, error) { return o.instar(ctx, o.binary, d) }})
		if o.against != "" {
			all = append(all, start{"against, " + d, func(ctx context.Context) (contender, error) { return o.instar(ctx, o.against, d) }})
		}
	}
	if o.river {
		all = append(all,
			start{"river, synchronous_commit off", func(ctx context.Context) (contender, error) { return o.riverOn(ctx, "off") }},
			start{"river", func(ctx context.Context) (contender, error) { return o.riverOn(ctx, "on") }})
	}
	if n%2 == 1 {
		slices.Reverse(all)
	}
	for _, s := range all {
		f, err := o.measure(ctx, s.open)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		t.add(s.name, f)
	}
	return nil
}

// load is that of the last minute.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(raw), " ")
	return first
}

const most = 10 * time.Minute // of one measured part
