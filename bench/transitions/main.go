// Command transitions measures the program on this machine and prints figures and ratios of one run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/gctune"
	"github.com/bcc94042/instar/streams/embedded"
)

type options struct {
	duration time.Duration
	entities int
	clients  []int
	profiles []embedded.Profile
	only     string
	million  int
	heap     string // a file
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench/transitions:", err)
		os.Exit(1)
	}
}

func run() error {
	var o options
	clients := flag.String("clients", "1,32,256", "numbers of clients")
	profiles := flag.String("profiles", "interval,fsync", "durability profiles")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "measured time of each row")
	flag.IntVar(&o.entities, "entities", 5000, "entities that the load is spread over")
	flag.StringVar(&o.only, "only", "", "run only these parts, separated by commas: raw, publish, micro, http, million")
	flag.IntVar(&o.million, "million", 1_000_000, "entities of the start-up part; 0 leaves it out")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	flag.StringVar(&o.heap, "memprofile", "", "write a profile of what is in use to this file, at the end of the last part")
	start := flag.String("start", "", "only start on this directory and print how long it took (used by the million part)")
	flag.Parse()
	gctune.Keep() // as the program does
	if *start != "" {
		return startFrom(context.Background(), *start)
	}
	for _, c := range strings.Split(*clients, ",") {
		n, err := strconv.Atoi(c)
		if err != nil || n < 1 {
			return fmt.Errorf("-clients: %q is no number of clients", c)
		}
		o.clients = append(o.clients, n)
	}
	for _, p := range strings.Split(*profiles, ",") {
		profile, err := embedded.ParseProfile(p)
		if err != nil {
			return err
		}
		o.profiles = append(o.profiles, profile)
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Printf("bench/transitions: %s, %d CPUs, GOMAXPROCS %d, %d entities, %s per row; load generator, server and engine share the machine and this process\n",
		runtime.Version(), runtime.NumCPU(), runtime.GOMAXPROCS(0), o.entities, o.duration)
	return o.all(context.Background())
}

// wants reports whether a part is to be run.
func (o *options) wants(part string) bool {
	return o.only == "" || slices.Contains(strings.Split(o.only, ","), part)
}
