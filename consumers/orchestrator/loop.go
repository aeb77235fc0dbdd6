package orchestrator

// Run and the loop, in which everything happens in one goroutine. serve reads what is stored (load), and then takes changes of the three indexes in batches (take), has repositories told
// (tell), asks package schedule for grants, writes the ledger, and sends the starts (grant). While a write is under way changes gather, so that the next one stands for many.

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/orchestrator/lost"
	"github.com/bcc94042/instar/consumers/orchestrator/presence"
	"github.com/bcc94042/instar/consumers/orchestrator/schedule"
	"github.com/bcc94042/instar/consumers/orchestrator/tally"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/streams"
)

// Orchestrator schedules all tasks. Its indexes hold values as [TaskValue], [RepositoryValue] and [QueueValue] read them.
type Orchestrator struct {
	consumers.Deps
	Tasks, Repositories, Queues *index.Index

	Elsewhere bool          // no node takes tasks: those of the pool of the nodes have workers elsewhere, too
	Replicas  int           // of the bucket of slots
	Metrics   Metrics       // nil measures nothing
	KeepEnded time.Duration // how long tasks stay that have ended; 0 is for ever
	CloneFor  time.Duration // how long a clone may take that has no timeout of its own or of its type; 0 is as long as any task. No node clones for longer than its own configuration says

	// Room is how many tasks the nodes do together, where that is known. Nil is as many as there are.
	Room func() (tasks int, known bool)

	clock      func() time.Time // nil is the system's; for tests
	sweepEvery time.Duration    // the same: of the usual length if it is zero
}

// Metrics are told what happens.
type Metrics interface {
	Granted(queued []time.Duration)      // starts in one write: how long each had been due
	Stands(s *schedule.Stand, limit int) // what there is, every [sweepEvery]; nil when this process schedules no longer. limit is of all slots
}

// Bounds of what happens at once.
const (
	mostGrants    = 256 // in one write of the ledger
	mostChanges   = 8192
	Buffered      = 1 << 20 // keys that may wait in a subscription
	sweepEvery    = 10 * time.Second
	startAgain    = 5 * time.Second       // after a start that was not seen to arrive
	mostChecked   = 64                    // slots in one sweep of which the leader is asked
	settleWithin  = time.Second           // until a ledger without grants is written
	paceEvery     = 25 * time.Microsecond // for each slot, between two writes of the ledger: what a write costs rises with them
	paceMost      = 5 * time.Millisecond
	currentWithin = 10 * time.Second // until this node has seen what limits tasks; the server says every second how far it is
	grantWithin   = 2 * time.Second  // the same before anything is granted: slots are given back, and questions answered, between two tries
	actor         = "orchestrator"
)

// Run schedules until ctx ends, and returns nil then.
func (o *Orchestrator) Run(ctx context.Context) error {
	o.Deps = o.WithDefaults()
	if o.clock == nil {
		o.clock = time.Now
	}
	for _, ix := range []*index.Index{o.Tasks, o.Repositories, o.Queues} {
		select {
		case <-ix.Ready():
		case <-ctx.Done():
			return nil
		}
	}
	o.Keep(ctx, "orchestrator", o.serve)
	return nil
}

// loop is one run of serve: everything that it knows was read since it began.
type loop struct {
	*Orchestrator
	ctx    context.Context
	ledger *ledger
	sched  *schedule.Scheduler
	tally  *tally.Tally

	repos   map[string]*repo
	names   entryNames
	pools   map[string]string // consumers of pools that have workers elsewhere and tasks that wait, by the entry of their workers
	present *presence.Watch
	roomAt  time.Time                  // when it was asked what the nodes do
	dirty   map[string]struct{}        // repositories whose tasks, or themselves, have changed
	later   map[string]time.Time       // those that are to be looked at again
	next    time.Time                  // the first of them; zero is none
	types   map[string]*queue.Data     // entries of types, by <namespace>.type-<type>
	runs    dependencies               // what tasks run after that are queued
	blocked dependencies               // the task that has ended another one
	settles int                        // how many tasks were looked at because of others
	loading bool                       // nothing is sent for the sake of a batch
	needs   dependencies               // what all tasks run after
	passed  string                     // the last task that was looked at by expire
	lonely  *lost.List                 // tasks whose repository was not seen
	batches map[string]map[string]bool // tasks of a batch that are queued, by <namespace>.<repository>/<batch>
	batchOf map[string]string
	stops   map[string]stop   // by batch, the failed task that stops it
	stopOf  map[string]string // the batch that a task stops
	answers chan answer
	asked   chan *nats.Msg // who wants to know why a task waits
	asking  int
	settled time.Time    // when the ledger was written last
	held    bool         // what could be granted waits until it may be written again
	blind   time.Time    // until then nothing is granted: who leads what limits tasks has not said how far that is
	limits  func() error // takes all that has changed of queues and repositories
}

func (o *Orchestrator) begin(ctx context.Context) *loop {
	l := &loop{
		Orchestrator: o, ctx: ctx, tally: tally.New(),
		repos: map[string]*repo{}, names: entryNames{lists: map[[3]string][]string{}, elsewhere: o.Elsewhere}, pools: map[string]string{}, dirty: map[string]struct{}{}, lonely: lost.New(), later: map[string]time.Time{}, types: map[string]*queue.Data{}, runs: newDependencies(), blocked: newDependencies(), needs: newDependencies(), batches: map[string]map[string]bool{}, batchOf: map[string]string{}, stops: map[string]stop{}, stopOf: map[string]string{},
		answers: make(chan answer, mostAsked), asked: make(chan *nats.Msg, mostQuestions), limits: func() error { return nil },
	}
	l.sched = schedule.New(queue.DefaultAging, func(key string) bool {
		item, ok := o.Tasks.Get(key)
		return ok && l.serves(item)
	})
	return l
}

// serve schedules until something is lost.
func (o *Orchestrator) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := o.begin(ctx)
	wake := make(chan struct{}, 1)
	queues, repos, tasks := o.Queues.Queue(index.Filter{}, Buffered, wake), o.Repositories.Queue(index.Filter{}, Buffered, wake), o.Tasks.Queue(index.Filter{}, Buffered, wake)
	defer queues.Close()
	defer repos.Close()
	defer tasks.Close()
	l.limits = func() error { // all of them: a pause may be the last one
		for more := true; more; {
			some, err := followed(queues, l.queue)
			others, err2 := followed(repos, l.repository)
			if err := cmp.Or(err, err2); err != nil {
				return err
			}
			more = some || others
		}
		return nil
	}
	l.present = presence.New(ctx, l.NC, l.JS, l.Names.Stream(streams.EffectStream), wake)
	defer l.present.Close()
	defer cancel()
	if err := l.load(); err != nil {
		return err
	}
	end, err := l.answer()
	if err != nil {
		return err
	}
	defer end()
	l.stands()
	if l.Metrics != nil {
		defer l.Metrics.Stands(nil, 0)
	}
	sweep := time.NewTicker(cmp.Or(o.sweepEvery, sweepEvery))
	defer sweep.Stop()
	for {
		if err := l.limits(); err != nil {
			return err
		}
		more, err := followed(tasks, l.task)
		if err != nil {
			return err
		}
		again := earlier(earlier(l.tell(), l.workers()), l.nodes())
		granted, err := l.grant()
		if err != nil {
			return err
		}
		if granted || more {
			continue // others may have changed meanwhile; what is left of a queue does not wake
		}
		timer := time.NewTimer(l.until(again))
		select {
		case <-wake:
		case a := <-l.answers:
			l.answered(a)
		case m := <-l.asked:
			l.why(m)
		case <-timer.C:
		case <-sweep.C:
			l.sweep()
			l.idle()
			l.uncircle()
			l.resettle()
			l.restop()
			l.expire()
			l.orphans()
			l.stands()
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// followed takes what has changed, and reports whether there may be more.
func followed(from *index.Queue, take func(index.Item, bool)) (more bool, err error) {
	changes, _, err := from.Take(mostChanges, math.MaxInt)
	for _, c := range changes {
		take(c.Item, c.Deleted)
	}
	return len(changes) == mostChanges, err
}

// until is how long nothing is to be done, unless something changes.
func (l *loop) until(again time.Time) time.Duration {
	now := l.clock()
	if due := l.sched.Due(); !due.IsZero() && (again.IsZero() || due.Before(again)) {
		again = due
	}
	if l.held {
		again = earlier(again, l.settled.Add(l.pace()))
	}
	if l.blind.After(now) {
		again = earlier(again, l.blind)
	}
	if l.ledger.changed {
		if at := l.settled.Add(settleWithin); again.IsZero() || at.Before(again) {
			again = at
		}
	}
	if again.IsZero() {
		return sweepEvery
	}
	return min(max(again.Sub(now), 100*time.Microsecond), sweepEvery)
}

// load reads the ledger, and then everything that the indexes have. The slots come first: what is running has one, whatever its limits are now.
func (l *loop) load() error {
	ledger, rates, err := openLedger(l.ctx, &l.Deps, l.Replicas)
	if err != nil {
		return err
	}
	l.ledger = ledger
	if err := l.current(currentWithin); err != nil {
		return err
	}
	l.sched.SetEntry(clusterEntry, limitsOf(clusterEntry, nil))
	l.nodes()
	for name, w := range rates {
		l.sched.SetWindow(name, w)
	}
	for _, s := range ledger.slots {
		l.sched.Hold(s.task(l.names))
	}
	l.loading = true // who waits for whom is known at the end
	for _, x := range []struct {
		ix   *index.Index
		take func(index.Item, bool)
	}{{l.Queues, l.queue}, {l.Repositories, l.repository}, {l.Tasks, l.task}} {
		for after := ""; ; {
			page := x.ix.List(index.Query{After: after, Limit: 4096})
			for _, item := range page.Items {
				x.take(item, false)
			}
			if after = page.Next; after == "" {
				break
			}
		}
	}
	l.loading = false
	l.restop()
	l.Log.Info("scheduling tasks", "slots", len(ledger.slots), "repositories", len(l.repos))
	return nil
}

// current waits until this node has seen all that limits tasks: a pause, or a lower limit, that was answered, or by which whoever scheduled before went, may not have arrived here yet.
func (l *loop) current(within time.Duration) error {
	ctx, cancel := context.WithTimeout(l.ctx, within)
	defer cancel()
	for m, ix := range map[*machines.Machine]*index.Index{queue.Machine: l.Queues, repository.Machine: l.Repositories} {
		bucket := l.Names.Bucket(m.Plural)
		info, err := streams.Info(ctx, l.NC, streams.BucketStream(bucket))
		if err == nil {
			err = ix.Wait(ctx, info.State.LastSeq)
		}
		if err != nil {
			return fmt.Errorf("cannot start tasks before all of %s is seen: %w", bucket, err)
		}
	}
	return nil
}
