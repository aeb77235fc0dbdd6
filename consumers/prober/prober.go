package prober

// The loop that everything here runs in. Run, called by server/instances, calls follow, which passes changes of the indexes, heartbeats, probe results, observations,
// acknowledgements and answers to their handlers, and then visits the instances that are due (run, then visit in tracked.go). Decisions leave as commands (send.go).

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/prober/heartbeat"
	"github.com/bcc94042/instar/consumers/prober/pool"
	"github.com/bcc94042/instar/consumers/prober/quorum"
	"github.com/bcc94042/instar/consumers/prober/watchers"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/streams"
)

// Checker probes.
type Checker = pool.Checker

// Peers says which nodes may observe.
type Peers interface {
	Nodes() []string // that are live, this one included; in any order
}

// Prober looks after the instances of the partitions that this node owns.
type Prober struct {
	consumers.Deps
	Shares        cluster.Shares
	Instances     *index.Index
	Preservations *index.Index // nil preserves nothing
	Checker       Checker
	Peers         Peers  // nil is this node only
	Node          string // this node's name, as Peers has it
	Workers       int    // probes at a time; 0 is 512
	Metrics       Meter  // nil measures nothing

	clock   func() time.Duration // nil is the monotonic clock; for tests
	hold    time.Duration        // 0 is firstBeat; for tests
	listens time.Duration        // 0 is watchers.Life; for tests
	blinds  time.Duration        // 0 is blindFor; for tests
}

// Sizes of what may wait.
const (
	defaultWorkers = 512 // they wait most of the time

	// firstBeat is how long an admission waits for the first heartbeat, without which nobody finds the instance anyway: if that comes, both are one change.
	firstBeat = 50 * time.Millisecond

	BeatBuffer   = 1 << 16 // messages of each kind that may wait: heartbeats, views, acks
	ChangeBuffer = 1 << 17 // keys that may wait in a subscription
	tick         = 100 * time.Millisecond
	sweepEvery   = time.Second
)

// Run looks after instances until ctx ends, and returns nil then. All its goroutines have ended when it returns.
func (p *Prober) Run(ctx context.Context) error {
	indexes := []*index.Index{p.Instances}
	if p.Preservations != nil {
		indexes = append(indexes, p.Preservations)
	}
	for _, ix := range indexes {
		select {
		case <-ix.Ready():
		case <-ctx.Done():
			return nil
		}
	}
	l := p.newLoop(ctx)
	defer l.background.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.ctx = ctx
	if err := l.listen(); err != nil {
		return err
	}
	defer l.unsubscribe()
	for range l.workers() {
		l.background.Go(func() { l.pool.Work(ctx) })
	}
	for ctx.Err() == nil {
		l.follow()
	}
	return nil
}

// loop is the state of one Run. Only its goroutine uses it, except for the channels.
type loop struct {
	*Prober
	ctx        context.Context // of this run, whose life the loop has
	log        *slog.Logger
	metrics    Meter
	now        func() time.Duration
	background sync.WaitGroup

	owned    cluster.Set
	claims   [streams.Partitions]uint64        // under which they are owned
	gained   [streams.Partitions]time.Duration // when a partition was gained
	builds   uint64                            // of the index that all of the following goes with
	tracked  map[string]*tracked
	services map[string]*service
	anew     uint64                           // its revision when it was built anew; what was confirmed below that may be of another history
	aliases  map[string]map[*tracked]struct{} // by the key of the instance that they follow
	early    heartbeat.Early                  // heartbeats whose registration is not known yet
	ended    map[string]time.Duration         // instances that were fresh to their end, and when their partition was gained; see [loop.listened]
	due      heap

	health
	counts
	nodes    []string // live ones, when several observe
	inFlight inFlight
	admits   admits
	slow     int // slow probes that are under way

	pool    pool.Pool[attempt]
	answers chan answer
	beats   chan *nats.Msg
	views   chan *nats.Msg // of other observers
	acks    chan *nats.Msg
	asked   chan *nats.Msg // when instances of a service were heard
	status  chan nats.Status
	subs    []*nats.Subscription
	dropped map[*nats.Subscription]int // messages that were lost because this node was too slow for them
	strays  watchers.Strays            // watchers of services without instances
}

func (p *Prober) newLoop(ctx context.Context) *loop {
	start := time.Now()
	l := &loop{
		Prober: p, ctx: ctx, log: p.Log, metrics: p.Metrics, now: p.clock,
		dropped: map[*nats.Subscription]int{}, tracked: map[string]*tracked{}, services: map[string]*service{}, aliases: map[string]map[*tracked]struct{}{},
		answers: make(chan answer, 256),
		beats:   make(chan *nats.Msg, BeatBuffer), views: make(chan *nats.Msg, BeatBuffer), acks: make(chan *nats.Msg, BeatBuffer), asked: make(chan *nats.Msg, 64),
	}
	l.timers.Every, l.scopes.Count = tick, blindCount
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.metrics == nil {
		l.metrics = noMeter{}
	}
	l.pool = pool.Pool[attempt]{Checker: p.Checker, Log: l.log, Probed: l.metrics.Probed, Jobs: make(chan pool.Job[attempt], 256), Results: make(chan pool.Result[attempt], 256)}
	if l.now == nil {
		l.now = func() time.Duration { return time.Since(start) }
	}
	return l
}

func (l *loop) listen() error {
	l.status = l.NC.StatusChanged(nats.CONNECTED)
	for subject, c := range map[string]chan *nats.Msg{
		l.Names.Heartbeats(): l.beats, l.Names.Observations(): l.views, l.Names.Acknowledgements(): l.acks, l.Names.Heard(): l.asked,
	} {
		s, err := l.NC.ChanSubscribe(subject, c)
		if err != nil {
			l.unsubscribe()
			return err
		}
		l.subs = append(l.subs, s)
	}
	return nil
}

func (l *loop) unsubscribe() {
	for _, s := range l.subs {
		_ = s.Unsubscribe() // the connection may be gone already
	}
	l.NC.RemoveStatusListener(l.status)
}

// follow reads the indexes and everything else until a subscription is lost or the context ends.
func (l *loop) follow() {
	changes := l.Instances.Subscribe(index.Filter{}, ChangeBuffer)
	defer changes.Close()
	var preserved <-chan index.Change
	if l.Preservations != nil {
		s := l.Preservations.Subscribe(index.Filter{}, ChangeBuffer)
		defer s.Close()
		preserved = s.C
		l.loadPreservations()
	}
	if l.Peers != nil {
		l.nodes = l.Peers.Nodes()
	}
	owned, moved := l.Shares.Owned()
	l.load(owned)
	timer, ticker, sweep := time.NewTimer(0), time.NewTicker(tick), time.NewTicker(sweepEvery)
	defer timer.Stop()
	defer ticker.Stop()
	defer sweep.Stop()
	l.timers.Start(l.now())
	for {
		select {
		case <-l.ctx.Done():
			return
		case c, ok := <-changes.C:
			if !ok {
				return
			}
			l.wake()
			l.changed(&c)
		case c, ok := <-preserved:
			if !ok {
				return
			}
			l.wake()
			if c.Deleted {
				c.Item.State, c.Item.Value = "", nil
			}
			l.preservation(&c.Item)
		case <-moved:
			owned, moved = l.Shares.Owned()
			l.load(owned)
		case m := <-l.beats:
			l.wake()
			l.onHeartbeats(m)
		case r := <-l.pool.Results:
			l.wake()
			l.onResult(&r)
		case a := <-l.answers:
			l.wake()
			l.onAnswer(&a)
		case m := <-l.views:
			l.wake()
			l.onObservation(m)
		case m := <-l.acks:
			l.wake()
			l.onAcknowledgements(m)
		case m := <-l.asked:
			l.tellHeard(m)
		case <-l.status:
			l.resetDeadlines("the connection to NATS is back")
		case <-ticker.C:
			l.tick()
		case <-sweep.C:
			l.wake()
			l.sweep()
		case <-timer.C:
		}
		timer.Reset(l.run())
	}
}

// run visits the instances that are due, and returns the time until the next one is.
func (l *loop) run() time.Duration {
	l.wake()
	for range 1024 { // then others have a turn
		now := l.now()
		if len(l.due) == 0 {
			return time.Hour
		}
		t := l.due[0]
		if t.due > now {
			return t.due - now
		}
		l.visit(t, now)
	}
	return 0
}

// sweep is what is done every second.
func (l *loop) sweep() {
	if l.Peers != nil {
		if nodes := l.Peers.Nodes(); !quorum.Same(nodes, l.nodes) {
			l.nodes = nodes
			l.load(l.owned) // others may have to observe now
		}
	}
	now := l.now()
	l.checkDropped()
	l.weigh(now)
	l.forget(now)
	l.strays.Count = 0
	for name, s := range l.services {
		if s.watchers.Prune(now, l.unheard); len(s.members) == 0 {
			l.strays.Count += s.watchers.Len()
		}
		if s.unused() {
			delete(l.services, name)
			continue
		}
		l.renew(s, now)
	}
	l.flush()
}
