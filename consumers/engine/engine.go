package engine

// The engine as a whole. server/run.go builds an Engine and calls Run, which starts the loop of each partition (work, then partition.go), or hands work to cluster.Node, which
// calls it for every partition that this node has claimed. Beside the loops Run keeps a background check of all entities (reconcile.Passes) and a watchdog: it returns
// ErrStalled, and the process ends, when a partition has been in one commit for too long.

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/ended"
	"github.com/bcc94042/instar/consumers/poison"
	"github.com/bcc94042/instar/consumers/reconcile"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/streams"
)

// Engine runs the transitions of all machines. Fields other than Deps have defaults.
type Engine struct {
	consumers.Deps
	Batch     int           // commands taken at once; 0 is DefaultBatch
	CacheSize int           // entities kept in memory per partition; 0 is DefaultCache
	AckWait   time.Duration // until an unacked command comes again; 0 is 30 s
	Node      *cluster.Node // whose partitions are run; nil runs all of them

	// Indexes of the machines. An entity that its index lacks is not looked up before it is created: the commit finds out. Without an index, all are that are not in memory.
	Indexes *index.Map

	// StallAfter is how long one commit may take until its partition counts as stalled; 0 is a minute. What it waits for gives up before: a write after seconds, a read after 40.
	StallAfter time.Duration

	// ReconcileAfter is when the first pass over all entities begins, and how often it is looked for partitions that were taken over; 0 is 30 s.
	ReconcileAfter time.Duration

	// DropAfter is how long after its end the value of an entity of a machine is dropped, by the time of the stream of commands. It must be longer than answers to keys are
	// kept. 0 is never, as is nil.
	DropAfter func(machine string) time.Duration

	live       atomic.Int32                     // partitions that take commands
	busy       [streams.Partitions]atomic.Int64 // when the commit of a partition began, by e.now; 0 is idle
	reconciled atomic.Int64                     // entities that disagreed with their events
	coolUntil  atomic.Int64                     // nothing is created speculatively before this time, by e.now

	purging chan struct{} // holds whoever purges COMMANDS
	process string        // distinguishes this process from earlier ones

	clock func() time.Duration // nil but for tests

	stamp func(time.Time) time.Time // when the stream took a command, by a clock of a test's own
}

// endWithin is how long the other partitions have to end when one hangs; after that, what they have begun is abandoned.
const endWithin = 5 * time.Second

// Run takes commands until ctx ends: of all partitions, or of those that its node has. It returns [ErrStalled], without waiting longer than seconds for the partition that hangs,
// when one makes no progress at all: the process should end then, so that another one takes over.
func (e *Engine) Run(ctx context.Context) error {
	e.Deps = e.WithDefaults()
	e.Batch, e.CacheSize = cmp.Or(e.Batch, DefaultBatch), cmp.Or(e.CacheSize, DefaultCache)
	e.AckWait = cmp.Or(e.AckWait, 30*time.Second)
	if e.DropAfter == nil {
		e.DropAfter = func(string) time.Duration { return 0 }
	}
	e.purging, e.process = make(chan struct{}, 1), rand.Text()
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
	all.Go(func() { e.passes().Run(ctx) })
	drops := &ended.Passes{Deps: e.Deps, Indexes: e.Indexes, First: cmp.Or(e.ReconcileAfter, time.Minute), After: e.DropAfter, Owns: e.owns}
	all.Go(func() { drops.Run(ctx) })
	if e.Node != nil {
		defer cancel()
		return e.Node.Run(ctx, e.work)
	}
	for n := range streams.Partitions {
		all.Go(func() { e.work(ctx, nil, n) })
	}
	return nil
}

// passes is the background check of all entities in the partitions of this process.
func (e *Engine) passes() *reconcile.Passes {
	return &reconcile.Passes{Deps: e.Deps, Indexes: e.Indexes, After: e.ReconcileAfter, Owns: e.owns, Lacks: e.lacks}
}

// owns reports whether this process has a partition now.
func (e *Engine) owns(partition int) bool {
	if e.Node == nil {
		return true
	}
	s, _ := e.Node.Owned()
	return s.Has(partition)
}

// work runs one partition until ctx ends, or until leave is closed and what is under way has ended.
func (e *Engine) work(ctx context.Context, leave <-chan struct{}, n int) {
	p := &partition{e: e, n: n, name: consumers.PartitionName(n), leave: leave, turn: poison.Turn{C: e.Turn}}
	p.run(ctx)
}

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

// now is the clock that durations are measured by. Nobody can set it, and it stops while the machine is suspended, as everything here does. It is never 0.
func (e *Engine) now() time.Duration {
	if e.clock != nil {
		return e.clock()
	}
	return time.Since(began) + 1
}

// Reconciled is how many entities have disagreed with their events since the start (see the event "entity.reconciled").
func (e *Engine) Reconciled() int64 { return e.reconciled.Load() }
