package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/internal/gctune"
	"github.com/bcc94042/instar/streams/embedded"
)

func main() {
	rounds := flag.Int("rounds", 3, "rounds of every comparison; the contenders take turns in each")
	rows := flag.Int("rows", 20000, "rows per round with the default sync")
	synced := flag.Int("fsync-rows", 5000, "rows per round with fsync")
	only := flag.String("only", "", "one part: throughput, fsync, latency, producers")
	who := flag.String("contender", "", "of throughput and fsync: those only whose name has this in it")
	profile := flag.String("cpuprofile", "", "write a profile of this process to the file")
	flag.Parse()
	gctune.Keep() // as the program does
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := bench{rounds: *rounds, who: *who}
	err := func() error {
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
		for _, part := range []struct {
			name string
			run  func(context.Context) error
		}{
			{"throughput", func(ctx context.Context) error { return b.throughput(ctx, embedded.OS, *rows) }},
			{"fsync", func(ctx context.Context) error { return b.throughput(ctx, embedded.Fsync, *synced) }},
			{"latency", b.latency},
			{"producers", b.producers},
		} {
			if *only != "" && *only != part.name {
				continue
			}
			if err := part.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-outbox:", err)
		os.Exit(1)
	}
}

type bench struct {
	rounds int
	who    string
}

// contender relays rows of its own tables into a stream of its own.
type contender interface {
	name() string
	prepare(ctx context.Context, e *env) error                // tables and stream
	start(ctx context.Context, e *env) error                  // relays from now on
	write(ctx context.Context, tx pgx.Tx, rows []event) error // in the application's transaction
	committed()                                               // after it
	target() (stream, markers string)
	stop() error
}

// result is one round of one contender.
type result struct {
	perSecond      float64
	here, postgres float64 // microseconds of CPU per row
}

func (r result) cpu() float64 { return r.here + r.postgres }

// throughput compares how fast a backlog is relayed: the contender runs and waits, then all rows are committed at once.
func (b bench) throughput(ctx context.Context, profile embedded.Profile, n int) error {
	e, err := open(ctx, profile)
	if err != nil {
		return err
	}
	defer func() { _ = e.close(context.WithoutCancel(ctx)) }() // a temporary directory
	make := slices.DeleteFunc(contenders(), func(c func() contender) bool { return !strings.Contains(c().name(), b.who) })
	results := map[string][]result{}
	var names []string
	for round := range b.rounds {
		for i := range make {
			c := make[(i+round)%len(make)]() // nobody is always the first
			if round == 0 {
				names = append(names, c.name())
			}
			r, err := e.measure(ctx, c, n)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name(), err)
			}
			results[c.name()] = append(results[c.name()], r)
		}
	}
	fmt.Printf("\n%d rows of 256 bytes, %s, %d rounds in turns (%s/%s, %d CPUs)\n", n, durability(profile), b.rounds, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	table(names, results)
	return nil
}

func durability(p embedded.Profile) string {
	if p == embedded.Fsync {
		return "NATS with fsync (sync_interval: always)"
	}
	return "NATS with its default sync"
}

func (e *env) measure(ctx context.Context, c contender, n int) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := e.fresh(ctx); err != nil {
		return result{}, err
	}
	if err := c.prepare(ctx, e); err != nil {
		return result{}, err
	}
	stream, markers := c.target()
	defer func() { _ = e.js.DeleteStream(context.WithoutCancel(ctx), stream) }() // the next round makes its own
	if err := c.start(ctx, e); err != nil {
		return result{}, err
	}
	conn, err := pgx.Connect(ctx, e.dsn)
	if err != nil {
		return result{}, err
	}
	defer func() { _ = conn.Close(ctx) }()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return result{}, err
	}
	if err := c.write(ctx, tx, rows(n)); err != nil {
		return result{}, err
	}
	runtime.GC()
	before, err := cpu(e.cluster.PID())
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	if err := tx.Commit(ctx); err != nil {
		return result{}, err
	}
	c.committed()
	if err := e.stored(ctx, stream, markers, uint64(n)); err != nil { // a count
		return result{}, err
	}
	took := time.Since(began)
	after, err := cpu(e.cluster.PID())
	if err != nil {
		return result{}, err
	}
	d, per := after.minus(before), float64(n)*1000
	return result{perSecond: float64(n) / took.Seconds(), here: float64(d.here) / per, postgres: float64(d.postgres) / per}, c.stop()
}

// table shows medians, and the ratios to the first contender of each round.
func table(names []string, results map[string][]result) {
	slices.Sort(names)
	median := func(name string, of func(result) float64) float64 { return rig.Median(results[name], of) }
	fmt.Printf("%-34s %10s %10s %10s %10s\n", "", "us/row", "of it Go", "Postgres", "rows/s")
	for _, n := range names {
		fmt.Printf("%-34s %10.1f %10.1f %10.1f %10.0f\n", n, median(n, result.cpu), median(n, func(r result) float64 { return r.here }),
			median(n, func(r result) float64 { return r.postgres }), median(n, func(r result) float64 { return r.perSecond }))
	}
	for _, p := range pairs {
		a, b := results[p[0]], results[p[1]]
		if len(a) == 0 || len(b) == 0 {
			continue
		}
		fmt.Printf("%s against %s: %.1f times less CPU, %.1f times the rows per second (rounds:", p[0], p[1],
			median(p[1], result.cpu)/median(p[0], result.cpu), median(p[0], func(r result) float64 { return r.perSecond })/median(p[1], func(r result) float64 { return r.perSecond }))
		for i := range min(len(a), len(b)) {
			fmt.Printf(" %.1f", a[i].perSecond/b[i].perSecond)
		}
		fmt.Println(")")
	}
}

// streamOf makes an empty stream like that of the relay.
func (e *env) streamOf(ctx context.Context, name, subjects string) error {
	_, err := e.js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subjects}, Storage: jetstream.FileStorage, Duplicates: 2 * time.Minute})
	return err
}
