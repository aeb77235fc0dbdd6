// Command program measures the program as a process of its own: acknowledged durable transitions over NATS and HTTP, and
// registrations, in pairs with another version of it and beside Restate and etcd, with the CPU time of each process by the
// system's account. It prints one table for each durability, and ends with an error if something was lost or made twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bcc94042/instar/bench/internal/rig"
)

type options struct {
	binary, against, restate, etcd string // programs; only the first has to be there
	durabilities                   []string
	clients                        []int
	entities, runs, nodes          int
	duration                       time.Duration
	keyed, ready                   bool
	dir                            string // for what servers store
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench/program:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	clients := flag.String("clients", "1,32,256", "numbers of clients")
	durabilities := flag.String("durabilities", "interval,fsync", "durabilities of the server: interval, fsync, os; registrations and peers are measured with fsync, as these sync, too")
	flag.StringVar(&o.binary, "binary", "", "measure this `program` instead of one that is built from the source")
	flag.StringVar(&o.against, "against", "", "a second `program`, for example of the commit before: each row is measured with both, one after the other")
	flag.StringVar(&o.restate, "restate", "", "the `program` restate-server, measured beside")
	flag.StringVar(&o.etcd, "etcd", "", "the `program` etcd, measured beside")
	flag.IntVar(&o.entities, "entities", 1000, "services that the load is spread over")
	flag.IntVar(&o.nodes, "nodes", 1, "processes of the program: 3 are a cluster on this machine, whose CPU is that of all")
	flag.IntVar(&o.runs, "runs", 1, "times that each row is measured; the table has the medians")
	flag.DurationVar(&o.duration, "duration", 4*time.Second, "measured time of each row, after a quarter of it to warm up")
	flag.BoolVar(&o.keyed, "keyed", false, "also measure commands with an Idempotency-Key each, over NATS and HTTP")
	flag.BoolVar(&o.ready, "ready", false, "also measure services from their creation until they are READY, in a world that takes 20 ms")
	handler := flag.String("handler", "", "only serve Restate's handler at this `address` (used by the load)")
	flag.Parse()
	if *handler != "" {
		return serveHandler(ctx, *handler)
	}
	o.durabilities = strings.Split(*durabilities, ",")
	for _, c := range strings.Split(*clients, ",") {
		n, err := strconv.Atoi(c)
		if err != nil || n < 1 {
			return fmt.Errorf("-clients: %q is no number of clients", c)
		}
		o.clients = append(o.clients, n)
	}
	if o.entities < 1 || o.runs < 1 || o.duration <= 0 || o.nodes < 1 {
		return errors.New("-entities, -runs, -nodes and -duration have to be above 0")
	}
	return o.all(ctx)
}

// all makes every table.
func (o *options) all(ctx context.Context) (err error) {
	if o.dir, err = os.MkdirTemp("", "instar-bench-program"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	if o.binary, err = rig.Program(ctx, o.binary, o.dir); err != nil {
		return err
	}
	fmt.Printf("bench/program: %s, %d CPUs, %d services, %s per row; each server is a process of its own, the load generator shares the machine\n",
		runtime.Version(), runtime.NumCPU(), o.entities, o.duration)
	for _, d := range o.durabilities {
		if err := o.measure(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
	}
	return nil
}

// measure makes the table of one durability. All servers run from its beginning to its end, and rest while another is measured:
// so what is compared is measured within seconds.
func (o *options) measure(ctx context.Context, durability string) (err error) {
	rows := time.Duration(o.runs * len(o.clients) * 5)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute+rows*(2*o.duration+30*time.Second))
	defer cancel()
	contenders, stop, err := o.contenders(ctx, durability)
	defer stop()
	if err != nil {
		return err
	}
	for _, c := range contenders {
		if err := c.fill(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	t := table{}
	groups := [][]string{{overNATS, overHTTP}}
	if o.keyed {
		groups[0] = append(groups[0], keyedNATS, keyedHTTP)
	}
	if o.ready {
		groups = append(groups, []string{settling})
	}
	if durability == "fsync" {
		groups = append(groups, []string{registering}) // last: instances are not for what is measured after them
	}
	for _, ways := range groups {
		if err := o.rows(ctx, &t, contenders, ways); err != nil {
			return err
		}
	}
	fmt.Printf("\ndurability %s\n", durability)
	t.print()
	var wrong []error
	for _, c := range contenders {
		all, lost, extra, err := c.check(ctx)
		if err == nil && lost+extra > 0 {
			err = errors.New("what is stored is not what was answered")
		}
		if n, unknown := c.valueSize(); unknown == nil {
			fmt.Printf("  %-8s the value of a service has %d bytes\n", c.name, n)
		}
		if peak, unknown := c.peak(); unknown == nil {
			fmt.Printf("  %-8s %d MB of memory at most, without the handler\n", c.name, peak>>20)
		}
		fmt.Printf("  %-8s %d answers, read back: %d lost, %d extra\n", c.name, all, lost, extra)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(wrong...)
}

func (o *options) rows(ctx context.Context, t *table, contenders []*contender, ways []string) error {
	order := slices.Clone(contenders)
	for range o.runs {
		for _, clients := range o.clients {
			for _, way := range ways {
				for _, c := range order {
					if !c.offers(way) {
						continue
					}
					f, err := c.load(ctx, way, clients, o.duration)
					if err != nil {
						return fmt.Errorf("%s, %s, %d clients: %w", c.name, way, clients, err)
					}
					t.add(row{c.name, way, clients}, f)
				}
			}
		}
		slices.Reverse(order) // who comes first in a pair takes turns, too
	}
	return nil
}

// contenders starts the servers; stop ends those that have started, also after an error.
func (o *options) contenders(ctx context.Context, durability string) (all []*contender, stop func(), err error) {
	stop = func() {
		for _, c := range all {
			for _, closes := range c.closers {
				closes()
			}
			for _, p := range append(c.processes, c.members...) {
				p.Kill()
			}
		}
	}
	add := func(c *contender, err error) error {
		all = append(all, c)
		return err
	}
	if err := add(o.instar(ctx, ours, o.binary, durability)); err != nil {
		return all, stop, err
	}
	if o.against != "" {
		if err := add(o.instar(ctx, against, o.against, durability)); err != nil {
			return all, stop, err
		}
	}
	if durability != "fsync" {
		return all, stop, nil
	}
	if o.restate == "" {
		fmt.Println("\nRestate is left out. To measure it: npm install --prefix DIR @restatedev/restate-server, and -restate DIR/node_modules/@restatedev/restate-server-linux-x64/bin/restate-server (or -arm64)")
	} else if err := add(o.restateServer(ctx)); err != nil {
		return all, stop, err
	}
	if o.etcd == "" {
		fmt.Println("\netcd is left out. To measure it: apt-get install etcd-server, and -etcd /usr/bin/etcd")
	} else if err := add(o.etcdServer(ctx)); err != nil {
		return all, stop, err
	}
	return all, stop, nil
}
