// Command discovery measures service discovery on this machine: the program as a process of its own, over
// HTTP and NATS, with its CPU time and memory read from the system. It prints figures, and what they should be.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	instances int
	perOne    int // instances of one service
	duration  time.Duration
	only      string
	curve     []int
	watchers  []int  // of all services
	profile   string // directory for profiles; empty keeps none
	binary    string
	data      string // directory for what servers store
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench/discovery:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	curve := flag.String("curve", "1000,10000,100000", "numbers of instances of the curve; empty leaves it out")
	many := flag.String("watchers", "0,100,1000", "numbers of watchers of all services")
	address := flag.String("read", "", "only read so many watches of this server (used by the part watchers)")
	flag.IntVar(&o.instances, "instances", 10_000, "instances of the single figures")
	flag.IntVar(&o.perOne, "per-service", 50, "instances of one service")
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "measured time of each load")
	flag.StringVar(&o.only, "only", "", "run only this part: load, memory, curve, watch, watchers, death, rolling, cluster")
	flag.StringVar(&o.binary, "binary", "", "measure this program instead of one that is built from the source")
	flag.StringVar(&o.profile, "profile", "", "a `directory` for CPU profiles of the loads and a heap profile at rest")
	flag.Parse()
	for _, w := range strings.FieldsFunc(*many, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(w)
		if err != nil || n < 0 {
			return fmt.Errorf("-watchers: %q is no number of watchers", w)
		}
		o.watchers = append(o.watchers, n)
	}
	if *address != "" {
		return readAll(*address, o.watchers[0])
	}
	for _, c := range strings.FieldsFunc(*curve, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(c)
		if err != nil || n < o.perOne {
			return fmt.Errorf("-curve: %q is no number of instances from %d on", c, o.perOne)
		}
		o.curve = append(o.curve, n)
	}
	dir, err := os.MkdirTemp("", "instar-bench-discovery")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.data = dir
	if o.binary == "" {
		if o.binary, err = build(ctx, dir, o.profile != ""); err != nil {
			return err
		}
	}
	fmt.Printf("bench/discovery: %s, %d CPUs; the server is a process of its own, the load generator shares the machine\n", runtime.Version(), runtime.NumCPU())
	for _, part := range []struct {
		name string
		run  func(context.Context, *options) error
	}{{"load", load}, {"memory", memory}, {"curve", curveOf}, {"watch", watch}, {"watchers", watchers}, {"death", death}, {"rolling", rolling}, {"cluster", takeover}} {
		if o.only != "" && o.only != part.name {
			continue
		}
		if err := part.run(ctx, &o); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// row prints one figure beside its aim.
func row(what, figure, aim string) {
	if aim != "" {
		aim = "  aim: " + aim
	}
	fmt.Printf("  %-44s %s%s\n", what, figure, aim)
}
