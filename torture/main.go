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

	"github.com/bcc94042/instar/torture/internal/cluster"
	"github.com/bcc94042/instar/torture/internal/engine"
	"github.com/bcc94042/instar/torture/internal/operations"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/relays"
	"github.com/bcc94042/instar/torture/internal/rig"
	"github.com/bcc94042/instar/torture/internal/tasks"
)

func main() {
	if rig.ServeNATS(os.Args[1:]) || tasks.Work(os.Args[1:]) {
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	broken, err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "torture:", err)
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
	fs := flag.NewFlagSet("torture", flag.ContinueOnError)
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
	fmt.Fprintf(out, "seed %d; built in %s\n", o.seed, part.Since(began))
	found := inLanes(ctx, chosen, part.Session{Seed: o.seed, Long: o.long, Bin: bin, Dir: dir}, out)
	broken = len(found) > 0
	verdict := "no promise was broken"
	if broken {
		fmt.Fprintf(out, "\n%s\n", strings.Join(found, "\n"))
		verdict = fmt.Sprintf("PROMISES WERE BROKEN (seed %d)", o.seed)
	}
	fmt.Fprintf(out, "\n%s; %s in all\n", verdict, part.Since(began))
	return broken, ctx.Err()
}

// entry is one kind of torture. Parts of one lane run one after another, lanes run beside each other: most parts wait
// most of the time.
type entry struct {
	name, doc string
	lane      int
	run       func(*part.T) error
	slow      bool // only with -long, or by its name: a second cluster of three is too much for a short run on two cores
}

var parts = []entry{
	{"kill", "kill -9 under load", 0, engine.Killed, false},
	{"failpoints", "the program kills itself at every place of the protocol; the simulation does so at every message", 1, engine.Failpoints, true},
	{"porcupine", "labels as registers, guarded by If-Match, under kills", 1, engine.Linearizable, false},
	{"attached", "two instars on a NATS server of its own: kills of each", 1, engine.Attached, false},
	{"paused", "one of two instars stands still beyond the life of its key, and wakes up", 0, engine.Paused, false},
	{"cluster", "three nodes in a cluster: kills, leaders that die, a node that stands still, joins, leaves, a rolling restart", 0, cluster.Clustered, false},
	{"netns", "a node of a cluster is cut off from the others", 1, cluster.CutOffNode, true},
	{"upgrade", "a cluster of the last release is upgraded, taken back, and upgraded again, node by node", 1, cluster.Upgraded, true},
	{"operations", "what docs/operations.md says is done by its own commands: upgrade, downgrade, rotation, a full store", 1, operations.Operated, true},
	{"disk", "the disk is full, and has room again", 1, engine.DiskFull, false},
	{"power", "the disk loses its power", 2, engine.Power, false},
	{"strange", "messages again, late and forged, values written by hand", 1, engine.Strange, false},
	{"clock", "a clock that jumps", 1, engine.Stepped, false},
	{"outbox", "relays, Postgres and NATS are killed under twelve writers", 1, relays.Outboxes, false},
	{"calm", "a server that is left alone with 1,000 instances that beat, a protection that is held and an outbox", 2, engine.Calm, false},
	{"tasks", "workers, nodes and NATS are killed under tasks: limits, ends of attempts, and the task of a dead worker", 1, tasks.Killed, false},
	{"schedulers", "three nodes in a cluster: who schedules tasks is killed while they run, again and again", 1, tasks.TakenOver, true},
	{"nodes", "two relays, and nodes of servers, share an outbox: each is killed, and stands still, under twelve writers", 2, relays.OutboxNodes, false},
}

const lanes = 3

func names() []string {
	var list []string
	for _, p := range parts {
		list = append(list, p.name)
	}
	return list
}

func choose(only string, long bool) ([]entry, error) {
	if only == "" {
		return slices.DeleteFunc(slices.Clone(parts), func(p entry) bool { return p.slow && !long }), nil
	}
	for _, p := range parts {
		if p.name == only {
			return []entry{p}, nil
		}
	}
	return nil, fmt.Errorf("there is no part %q; there are %s", only, strings.Join(names(), ", "))
}

// inLanes runs the parts and prints each when it has ended. What was found is for the end, because a log is often kept
// by its last lines.
func inLanes(ctx context.Context, chosen []entry, s part.Session, out io.Writer) (found []string) {
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
				if !ok {
					found = append(found, violations(p.name, said.String())...)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return found
}

// violations are the first of what a part has told, a line each, and never none.
func violations(name, said string) []string {
	lines := []string{name + " broke a promise:"}
	for line := range strings.Lines(said) {
		line = strings.TrimRight(line, "\n")
		if told := strings.TrimSpace(line); strings.HasPrefix(told, "VIOLAT") || strings.HasPrefix(told, "FAILED") {
			lines = append(lines, line[:min(len(line), 400)])
		}
	}
	return lines[:min(len(lines), 6)]
}

// one runs one part and reports whether all promises held.
func one(ctx context.Context, p entry, s part.Session, out io.Writer) bool {
	began := time.Now()
	t := part.New(ctx, p.name, s, out)
	t.Dir = filepath.Join(s.Dir, p.name)
	fmt.Fprintf(out, "\n%s: %s\n", p.name, p.doc)
	err := p.run(t)
	t.End()
	if skip := part.Skipped(""); errors.As(err, &skip) {
		t.Say("skipped: %s", string(skip))
		return true
	}
	if err != nil {
		t.Violations++
		t.Say("FAILED: %v", err)
	}
	t.Say("%d violations; %s", t.Violations, part.Since(began))
	return t.Violations == 0
}
