package consumers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Meter is told what happens; all methods must be quick and safe for concurrent use.
type Meter interface {
	Transition(machine, from, to, input string, stayed time.Duration)
	Refused(machine, code string)
	Conflict(machine string)
	Attempt(effect, outcome string)
	DeadLetter(consumer string)
	Restarted(consumer string)
	Reconciled(machine, problem string)
	Skipped(view string)
}

// Tracer starts a span below a W3C traceparent and returns the traceparent of the span and what ends it.
type Tracer func(name, parent string, attributes ...string) (traceparent string, end func(error))

// Deps is what every consumer needs.
type Deps struct {
	NC       *nats.Conn
	JS       jetstream.JetStream
	Names    streams.Names
	Appender *streams.Appender
	Commands *streams.Commands
	Machines []*machines.Machine
	Log      *slog.Logger
	Meter    Meter  // nil measures nothing
	Trace    Tracer // nil traces nothing

	// Acking is held while a command is acked whose entity was written before (see [streams.Server.Acking]); nil needs nothing.
	Acking sync.Locker

	// Replicated says that the streams have replicas. Then consumers of work queues are kept on disk: of a group in memory
	// everybody begins with an empty log, and without all of its members it elects no leader.
	Replicated bool

	turn chan struct{} // that of the process, but for tests, which have several
}

func (d Deps) withDefaults() Deps {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Meter == nil {
		d.Meter = noMeter{}
	}
	if d.Acking == nil {
		d.Acking = unlocked{}
	}
	if d.turn == nil {
		d.turn = turn
	}
	if d.Trace == nil {
		d.Trace = func(_, parent string, _ ...string) (string, func(error)) { return parent, func(error) {} }
	}
	return d
}

func (d *Deps) dead() streams.DeadLetters {
	return streams.DeadLetters{JS: d.JS, Names: d.Names, Appender: d.Appender}
}

// Engine runs the transitions of all machines. Fields other than Deps have defaults.
type Engine struct {
	Deps
	Batch     int           // commands taken at once; 0 is 256
	CacheSize int           // entities kept in memory per partition; 0 is 2048
	AckWait   time.Duration // until an unacked command comes again; 0 is 30 s
	Node      *Node         // whose partitions are run; nil runs all of them

	// Indexes of the machines, by name. An entity that its index lacks is not looked up before it is created: the commit
	// finds out. Without an index, every entity is looked up that is not in memory.
	Indexes map[string]*kv.Index

	// StallAfter is how long one commit may take until its partition counts as stalled; 0 is a minute. What a
	// commit waits for gives up before: a write after some seconds, a read after ten.
	StallAfter time.Duration

	// ReconcileAfter is when the first pass over all entities begins; 0 is 30 s after the start.
	ReconcileAfter time.Duration

	byName     map[string]*machines.Machine
	live       atomic.Int32                     // partitions that take commands
	busy       [streams.Partitions]atomic.Int64 // since when a partition is at one commit, by now; 0 is idle
	reconciled atomic.Int64                     // entities that did not fit their events
	doubt      atomic.Int64                     // nothing is guessed before this time, by now

	purging chan struct{} // holds whoever purges COMMANDS
	process string        // tells this process from those before it

	clock   func() time.Duration // nil but for tests
	turnFor time.Duration        // 0 is turnFor; for tests

	stamp func(time.Time) time.Time // when the stream took a command, by a clock of a test's own
}

// endWithin is how long those partitions have to come to their end that do not hang: what they have begun counts for nothing then.
const endWithin = 5 * time.Second

// Run takes commands until ctx ends: of all partitions, or of those that its node has. It returns [ErrStalled], without
// waiting longer than seconds for the partition that hangs, when one makes no progress at all: the process should end then, so
// that another one takes over.
func (e *Engine) Run(ctx context.Context) error {
	e.Deps = e.withDefaults()
	e.Batch, e.CacheSize = cmp.Or(e.Batch, 256), cmp.Or(e.CacheSize, 2048)
	e.AckWait = cmp.Or(e.AckWait, 30*time.Second)
	e.purging, e.process = make(chan struct{}, 1), rand.Text()
	e.byName = map[string]*machines.Machine{}
	for _, m := range e.Machines {
		e.byName[m.Name] = m
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- e.run(inner, cancel) }()
	after := 2 * cmp.Or(e.StallAfter, time.Minute)
	tick := time.NewTicker(min(time.Second, after))
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			if e.stalledFor(after) > 0 {
				cancel()
				select {
				case <-ended:
				case <-time.After(endWithin):
				}
				return fmt.Errorf("consumers: %w for %s", ErrStalled, after)
			}
		}
	}
}

// ErrStalled says that a partition has been at one commit for much longer than anything that it waits for may take.
var ErrStalled = errors.New("a partition makes no progress")

func (e *Engine) run(ctx context.Context, cancel context.CancelFunc) error {
	var all sync.WaitGroup
	defer all.Wait()
	if e.Node != nil {
		defer cancel()
		all.Go(func() { e.reconcileAll(ctx) })
		return e.Node.Run(ctx, e.work)
	}
	all.Go(func() { e.reconcileAll(ctx) })
	for n := range streams.Partitions {
		all.Go(func() { e.work(ctx, nil, n) })
	}
	return nil
}

// work runs one partition until ctx ends, or until leave is closed and what is under way has ended.
func (e *Engine) work(ctx context.Context, leave <-chan struct{}, n int) {
	p := &partition{e: e, n: n, name: partitionName(n), leave: leave}
	p.run(ctx)
}

// may reports whether this process may still take itself for the owner of its partitions. One that stood still finds out
// here, before it decides anything from memory.
func (e *Engine) may() bool { return e.Node == nil || e.Node.current() }

// Live is how many of the [streams.Partitions] partitions take commands now and make progress.
func (e *Engine) Live() int { return int(e.live.Load()) - e.Stalled() }

// Stalled is how many partitions have been at one commit for StallAfter. That is a fault of this program or of a table.
func (e *Engine) Stalled() int { return e.stalledFor(cmp.Or(e.StallAfter, time.Minute)) }

func (e *Engine) stalledFor(d time.Duration) int {
	stalled, now := 0, int64(e.now())
	for i := range e.busy {
		if since := e.busy[i].Load(); since != 0 && now-since > int64(d) {
			stalled++
		}
	}
	return stalled
}

var began = time.Now()

// now is the clock that tells how long something takes. Nobody can set it, and it stands still while the machine is suspended, as
// everything here does. It is never 0.
func (e *Engine) now() time.Duration {
	if e.clock != nil {
		return e.clock()
	}
	return time.Since(began) + 1
}

// Reconciled is how many entities did not fit their events since the start (see the event "entity.reconciled").
func (e *Engine) Reconciled() int64 { return e.reconciled.Load() }

type unlocked struct{}

func (unlocked) Lock()   {}
func (unlocked) Unlock() {}

type noMeter struct{}

func (noMeter) Transition(string, string, string, string, time.Duration) {}
func (noMeter) Refused(string, string)                                   {}
func (noMeter) Conflict(string)                                          {}
func (noMeter) Attempt(string, string)                                   {}
func (noMeter) DeadLetter(string)                                        {}
func (noMeter) Restarted(string)                                         {}
func (noMeter) Reconciled(string, string)                                {}
func (noMeter) Skipped(string)                                           {}

// consumer looks a consumer of a work queue up, and makes it when it is not there or not as it should be. Looking asks its
// own leader; making one asks that of the cluster, which may be away for seconds when a node has died.
//
// Where a single server's stands is told by the stream itself: what is acked is gone from a work queue. A stored state
// would cost a file written and renamed ten times a second for each of them, and be no truer.
func (d *Deps) consumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	if d.Replicated { // its leader may just have died
		if err := streams.ConsumerLed(ctx, d.NC, stream, want.Durable); err != nil {
			return nil, err
		}
	}
	look, cancel := context.WithTimeout(ctx, streams.ReadWithin)
	defer cancel()
	cons, err := d.JS.Consumer(look, stream, want.Durable)
	if err == nil {
		have := cons.CachedInfo().Config
		if have.MemoryStorage != want.MemoryStorage { // that cannot be changed; what is not acked stays in the stream
			if err := d.JS.DeleteConsumer(ctx, stream, want.Durable); err != nil {
				return nil, err
			}
		} else if have.FilterSubject == want.FilterSubject && have.AckWait == want.AckWait && have.MaxAckPending == want.MaxAckPending && have.Description == want.Description {
			return cons, nil
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, err
	}
	return d.JS.CreateOrUpdateConsumer(ctx, stream, want)
}

// keep runs serve again and again until ctx ends, with back-off while it fails soon.
func (d *Deps) keep(ctx context.Context, name string, serve func(context.Context) error) {
	for try := 0; ctx.Err() == nil; try++ {
		started := time.Now()
		err := serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > 10*time.Second {
			try = 0
		}
		d.Meter.Restarted(name)
		d.Log.Error("a consumer stopped; it starts again", "consumer", name, "error", err)
		if !wait.Backoff(ctx, try) {
			return
		}
	}
}

// gone tells broken when a pull finds its consumer gone, or its server.
func gone(broken chan<- error) jetstream.PullConsumeOpt {
	return jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) {
			select {
			case broken <- err:
			default:
			}
		}
	})
}
