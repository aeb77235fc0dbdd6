package cluster

// The life of this process as a node. Run, called by the engine with its partition loop as work, writes the node's key (join in node_key.go), keeps it renewed, and in
// balanceLoop follows the bucket of owners: it refreshes its view, declares silent nodes ended, and starts or stops partitions (partitions.go). When ctx ends, or Leave is
// called, it gives its partitions back. Engine, roles and prober ask it what they may do: LeaseValid, Eligible and Owned.

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

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/boottime"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Node is this process among the nodes that share the partitions. It renews a key in the bucket of owners, watches those
// of the others, and holds a claim for each partition that it runs.
//
// Who lives is judged by no wall clock, neither of a server nor of a node: a node whose key another one has not seen renewed
// for its life, by that one's own clock since boot, has ended, once that one has written so at the revision that it saw.
// Then its own renewal fails, should it live. The life is in the key: nodes may have different ones.
//
// A node takes a partition when the partition is its own by rendezvous hashing over the live nodes, and the claim is
// free, its own, or held by a process of which the bucket says that it has ended. It gives it back when its loop has come to
// an end. Every claim is a write at a revision. A node that could not renew its key for three quarters of its life stops
// what it runs, before anybody else may take it. None of this carries the safety of the commit protocol, which the
// revision checks of entities do: it keeps nodes from hindering each other.
//
// Node is the [Shares] of this node.
type Node struct {
	JS       jetstream.JetStream
	Names    streams.Names
	Appender *publish.Appender
	Name     string        // of the node, a DNS label, kept with its data directory
	Nonce    string        // of the process; made up when empty
	Before   []string      // nonces of processes before it in the same directory, which are known to have ended
	Version  string        // of the program, for show
	Life     time.Duration // of a key that is not renewed; 0 is DefaultLife, at least 1 s
	Log      *slog.Logger

	clock func() time.Duration // boottime.Now, but for tests
	wall  func() time.Time     // time.Now, but for tests
	until atomic.Int64         // until when, by the clock, this node may take itself for one; 0: it may not

	skew   atomic.Int64 // see Skew
	skewed bool         // it was reported; only the loop that renews uses it

	renewNow chan struct{}
	wake     chan struct{}

	mu          sync.Mutex
	index       *index.Index
	http        string
	offers      map[string]int // of what While runs; replaced, never changed
	working     bool           // it runs
	started     time.Time
	revision    uint64 // of this node's key
	wrote       renewal
	view        view
	seen        map[string]lastSeen
	builds      uint64                    // of the index that seen and latest go with
	latest      [streams.Partitions]claim // as written or read by this node, newer than the view at times
	runs        [streams.Partitions]*run
	paused      [streams.Partitions]time.Time // no try before this
	owned       Set
	leaving     bool          // gives everything back and takes nothing
	ending      bool          // Run is to return when that is done
	announced   NodeState     // as the key says
	ownedChange chan struct{} // closed when owned changes
	anyChange   chan struct{} // closed when anything changes
	failed      error
}

// DefaultLife is that of a node's key.
const DefaultLife = 3 * time.Second

// run is one partition from the claim to the release.
type run struct {
	leave   chan struct{} // closed when the loop is to come to an end
	left    bool
	abort   context.CancelFunc
	claimed bool // the claim was written
	lost    bool // the node's time is over: nothing is given back
}

// Work runs a partition until leave is closed and what is under way has ended, or until ctx ends.
type Work func(ctx context.Context, leave <-chan struct{}, partition int)

// ErrNameTaken says that another process lives under this node's name.
var ErrNameTaken = errors.New("another process runs under the name of this node")

// ErrNoNode says that there is no node of that name.
var ErrNoNode = errors.New("there is no such node")

// PullExpiry is how long a request for commands lives; nothing heard of it for that long ends its partition. It is shorter than the life of a node's key, so that the requests of a
// node that is suspended have expired when another one takes its partitions: the successor would miss what is delivered to them. Where nobody waits for them, they live for longer:
// a machine that is too slow to say that it lives would have its partitions drop what they know, and read all of it again. Without a node it is as in a cluster.
func (n *Node) PullExpiry() time.Duration {
	life := DefaultLife
	if n != nil {
		life = n.Life
	}
	return min(max(life*2/3, time.Second), 10*time.Second)
}

// prepare makes the zero value useful; it may be called again.
func (n *Node) prepare() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ownedChange != nil {
		return
	}
	n.Life = max(cmp.Or(n.Life, DefaultLife), time.Second)
	if n.Nonce == "" {
		n.Nonce = rand.Text()
	}
	if n.Log == nil {
		n.Log = slog.New(slog.DiscardHandler)
	}
	if n.clock == nil {
		n.clock = boottime.Now
	}
	if n.wall == nil {
		n.wall = func() time.Time { return time.Now().Round(0) } // without the monotonic clock
	}
	n.started = time.Now().UTC().Truncate(time.Millisecond)
	n.seen = map[string]lastSeen{}
	n.ownedChange, n.anyChange = make(chan struct{}), make(chan struct{})
	n.renewNow, n.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	// A loss of power may take the newest value of a key when the one before it has been removed from the disk already. Whoever resumes does not hear of that, and a
	// partition would belong for ever to a node that has released it. There are few keys, so all are read again.
	const never = 1
	n.index = index.New(n.JS, n.Names.Bucket(streams.OwnersBucket), describe, index.Options{Log: n.Log, ResumeWithin: never})
}

// Run is a node until ctx ends; then it gives back what it holds, when the loops have come to an end. It returns an error
// that is [ErrNameTaken] when another process lives under its name.
func (n *Node) Run(ctx context.Context, work Work) error {
	n.prepare()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what gives back outlives ctx
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { _ = n.index.Run(inner) })
	select {
	case <-n.index.Ready():
	case <-ctx.Done():
		return nil
	}
	n.refreshView()
	if err := n.join(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	all.Go(func() { n.renew(inner) })
	all.Go(func() { n.watchLease(inner) })
	err := n.balanceLoop(ctx, inner, work)
	cancel()
	all.Wait()
	n.markEnded()
	return err
}

// balanceLoop takes and gives partitions until ctx has ended and everything is given back.
func (n *Node) balanceLoop(ctx, inner context.Context, work Work) error {
	tick := time.NewTicker(min(n.Life/12, 250*time.Millisecond))
	defer tick.Stop()
	done := ctx.Done()
	var loops sync.WaitGroup
	defer loops.Wait()
	sub := n.index.Subscribe(index.Filter{}, 4096)
	defer func() { sub.Close() }()
	for {
		n.refreshView()
		n.expireSilent(inner)
		if n.balance(inner, &loops, work) {
			return n.failure()
		}
		select {
		case _, ok := <-sub.C:
			if !ok {
				sub.Close()
				sub = n.index.Subscribe(index.Filter{}, 4096)
			}
		case <-n.wake:
		case <-tick.C:
		case <-done:
			done = nil
			n.startLeaving(true)
		}
	}
}

// Leave gives everything back and returns when that is done. The node stays alive, as one that is draining.
func (n *Node) Leave(ctx context.Context) error {
	n.prepare()
	n.startLeaving(false)
	for {
		n.mu.Lock()
		changed, busy := n.anyChange, n.busy()
		n.mu.Unlock()
		if busy == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d partitions are not given back yet: %w", busy, ctx.Err())
		}
	}
}

func (n *Node) startLeaving(end bool) {
	n.mu.Lock()
	n.leaving, n.ending = true, n.ending || end
	n.mu.Unlock()
	n.wakeLoops()
}

func (n *Node) busy() int {
	count := 0
	for _, h := range n.runs {
		if h != nil {
			count++
		}
	}
	return count
}

// wakeLoops makes the loops look again.
func (n *Node) wakeLoops() {
	signal(n.wake)
	signal(n.renewNow)
}

// signal wakes the reader of a channel that has room for one signal.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Announce publishes, in this node's key, where its API is.
func (n *Node) Announce(http string) {
	n.prepare()
	n.mu.Lock()
	n.http = http
	n.mu.Unlock()
	n.wakeLoops()
}

// Owned returns the partitions that this node owns now.
func (n *Node) Owned() (Set, <-chan struct{}) {
	n.prepare()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.owned, n.ownedChange
}

// Eligible is what this node may do with roles: take them when it is live, keep them when it is cordoned, and neither when
// it is draining. The channel is closed when anything changes in the bucket of owners.
func (n *Node) Eligible() (NodeState, <-chan struct{}) {
	n.prepare()
	n.mu.Lock()
	defer n.mu.Unlock()
	state := n.state()
	if state == NodeLive && !n.LeaseValid() {
		state = NodeCordoned // its key is not renewed, or not yet: leases that it holds show whether it may keep them
	}
	return state, n.anyChange
}

// LeaseValid reports whether this node's key was renewed in time, by its own clock: only then it may act as a node.
func (n *Node) LeaseValid() bool { return n.clock() < time.Duration(n.until.Load()) }

// state is what this node should be. It is called under the lock.
func (n *Node) state() NodeState {
	switch want := n.view.desired[n.Name]; {
	case n.leaving || want == NodeDraining:
		return NodeDraining
	case want == NodeCordoned:
		return NodeCordoned
	}
	return NodeLive
}

// notify wakes those who wait for a change. It is called under the lock.
func (n *Node) notify() {
	close(n.anyChange)
	n.anyChange = make(chan struct{})
}

// setOwned is called under the lock.
func (n *Node) setOwned(s Set) {
	if s == n.owned {
		return
	}
	n.owned = s
	close(n.ownedChange)
	n.ownedChange = make(chan struct{})
	n.notify()
}

func (n *Node) failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}
