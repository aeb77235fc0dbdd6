package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bcc94042/instar/torture/internal/rig"
)

func main() {
	if rig.ServeNATS(os.Args[1:]) {
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	broken, err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "instar-torture:", err)
		os.Exit(2)
	case broken:
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	long, keep bool
	only       string
	seed       uint64
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("instar-torture", flag.ContinueOnError)
	fs.BoolVar(&o.long, "long", false, "torture for about an hour, most of which is a server that is left alone")
	fs.StringVar(&o.only, "only", "", "run one part: "+strings.Join(names(), ", "))
	fs.Uint64Var(&o.seed, "seed", 0, "of all that is random; 0 takes the time. The moments of kills differ all the same")
	fs.BoolVar(&o.keep, "keep", false, "keep the directory when a promise was broken")
	err := fs.Parse(args)
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1e9
	}
	return o, err
}

// run tortures and reports whether a promise was broken.
func run(ctx context.Context, args []string, out io.Writer) (broken bool, err error) {
	o, err := parse(args)
	if err != nil {
		return false, err
	}
	chosen, err := choose(o.only, o.long)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "instar-torture-")
	if err != nil {
		return false, err
	}
	defer func() {
		if broken && o.keep {
			fmt.Fprintln(out, "everything is kept in", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	began := time.Now()
	bin, err := rig.Build(ctx, dir)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "seed %d; built in %s\n", o.seed, since(began))
	broken = inLanes(ctx, chosen, session{seed: o.seed, long: o.long, bin: bin, dir: dir}, out)
	verdict := "no promise was broken"
	if broken {
		verdict = fmt.Sprintf("PROMISES WERE BROKEN (seed %d)", o.seed)
	}
	fmt.Fprintf(out, "\n%s; %s in all\n", verdict, since(began))
	return broken, ctx.Err()
}

// part is one kind of torture. Parts of one lane run one after another, lanes run beside each other: most parts wait
// most of the time.
type part struct {
	name, doc string
	lane      int
	run       func(*T) error
	slow      bool // only with -long, or by its name: a second cluster of three is too much for a short run on two cores
}

var parts = []part{
	{"kill", "kill -9 under load", 0, killed, false},
	{"wire", "the connection to NATS breaks, or is slow, at exact messages", 0, cutOff, false},
	{"failpoints", "the program kills itself at every place of the protocol", 1, failpoints, false},
	{"porcupine", "labels as registers, guarded by If-Match, under kills", 1, linearizable, false},
	{"attached", "two instars on a NATS server of its own: kills of each", 1, attached, false},
	{"paused", "one of two instars stands still beyond the life of its key, and wakes up", 0, paused, false},
	{"cluster", "three nodes in a cluster: kills, leaders that die, a node that stands still, joins, leaves, a rolling restart", 0, clustered, false},
	{"netns", "a node of a cluster is cut off from the others", 1, cutOffNode, true},
	{"upgrade", "a cluster of the last release is upgraded, taken back, and upgraded again, node by node", 1, upgraded, true},
	{"operations", "what docs/operations.md says is done by its own commands: upgrade, downgrade, rotation, a full store", 1, operated, true},
	{"disk", "the disk is full, and has room again", 1, diskFull, false},
	{"power", "the disk loses its power", 2, power, false},
	{"strange", "messages again, late and forged, values written by hand", 1, strange, false},
	{"gateways", "gateways that never answer, always fail, or answer late, and all results again", 2, gateways, false},
	{"clock", "a clock that jumps", 1, stepped, false},
	{"outbox", "relays, Postgres and NATS are killed under twelve writers", 1, outboxes, false},
	{"calm", "a server that is left alone with 1,000 instances that beat, a protection that is held and an outbox", 2, calm, false},
	{"nodes", "two relays, and nodes of servers, share an outbox: each is killed, and stands still, under twelve writers", 0, outboxNodes, false},
}

const lanes = 3

func names() []string {
	var list []string
	for _, p := range parts {
		list = append(list, p.name)
	}
	return list
}

func choose(only string, long bool) ([]part, error) {
	if only == "" {
		return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.slow && !long }), nil
	}
	for _, p := range parts {
		if p.name == only {
			return []part{p}, nil
		}
	}
	return nil, fmt.Errorf("there is no part %q; there are %s", only, strings.Join(names(), ", "))
}

// inLanes runs the parts and prints each when it has ended.
func inLanes(ctx context.Context, chosen []part, s session, out io.Writer) (broken bool) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for _, p := range chosen {
				if p.lane != lane || ctx.Err() != nil {
					continue
				}
				var said bytes.Buffer
				ok := one(ctx, p, s, &said)
				mu.Lock()
				_, _ = out.Write(said.Bytes()) // standard output
				broken = broken || !ok
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return broken
}

// one runs one part and reports whether all promises held.
func one(ctx context.Context, p part, s session, out io.Writer) bool {
	began := time.Now()
	t := newTorture(ctx, p.name, s, out)
	t.dir = filepath.Join(s.dir, p.name)
	fmt.Fprintf(out, "\n%s: %s\n", p.name, p.doc)
	err := p.run(t)
	t.end()
	if skip := skipped(""); errors.As(err, &skip) {
		t.say("skipped: %s", string(skip))
		return true
	}
	if err != nil {
		t.violations++
		t.say("FAILED: %v", err)
	}
	t.say("%d violations; %s", t.violations, since(began))
	return t.violations == 0
}
