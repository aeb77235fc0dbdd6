package simulation

// The World, and the loop that decides what happens next. All processes run as they would, until they wait; then the loop takes one step: a packet reaches the server, a message
// reaches a client, time passes, or something goes wrong. Which one is drawn from the seed.

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/internal/simulation/disk"
	"github.com/bcc94042/instar/internal/simulation/model"
	"github.com/bcc94042/instar/internal/simulation/operator"
	"github.com/bcc94042/instar/internal/simulation/orders"
	"github.com/bcc94042/instar/internal/simulation/outside"
	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/internal/simulation/trace"
	"github.com/bcc94042/instar/internal/simulation/wake"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// World is everything that there is in one run.
type World struct {
	opts  schedule.Options
	plan  streams.Plan
	keys  map[string][]string // of entities, by machine
	r     *rand.Rand          // what happens next
	trace *trace.Trace

	server     *model.Server
	disk       *disk.Disk
	serverDown bool
	next       []choice
	holds      time.Time    // something is held up until then
	clock      pinned.Clock // of the server
	places     []*place
	clients    []*client
	processes  []*node // all that were ever started
	wires      []*wire
	dials      sync.Mutex // of several at once, where the runtime is not held still
	wake       wake.Wake  // something was sent

	outside               outside.Outside
	history               history
	rereading             bool      // what was seen before is read again
	calmAt                time.Time // nothing goes wrong any more
	failures              []trace.Failure
	upAt                  int            // steps until the nodes were up
	happened              map[int]bool   // faults
	wrong                 map[string]int // how often each kind
	passed                map[int]int    // packets of the kind that a fault waits for
	wrongAt               time.Time      // something went wrong for the last time
	fullUntil, serverBack time.Time
	slowUntil             time.Time
	pausedUntil           time.Time // by the clock of the server
	elections             []election
	operator              *operator.Operator
	wanted                map[string]cluster.NodeState // by the operator, of nodes
	laters                []later
	purged                bool   // an operator has taken out what was stored
	lost                  bool   // a loss of power has cost something
	replaced              *saved // what is to take the place of everything
	emptied, restoring    bool   // there is nothing; nobody but the operator may go on
	restored              bool   // and somebody may
	restores              int
	above                 uint64 // versions of what has begun since the last restore
	over                  bool   // whoever still does something gives up
}

// wire is one connection.
type wire struct {
	id    int
	owner string
	n     *node // nil for a client
	held  time.Time
}

func newWorld(o schedule.Options, tr *trace.Trace) *World {
	w := &World{
		opts: o, keys: map[string][]string{}, r: schedule.Draws(o.Seed, 2), trace: tr, wake: wake.New(),
		outside: outside.Outside{Machines: o.Machines, Lies: o.Lies, Note: tr.Note}, happened: map[int]bool{}, wrong: map[string]int{}, passed: map[int]int{}, wanted: map[string]cluster.NodeState{}, history: newHistory(),
	}
	tr.Began = time.Now()
	w.outside.Late = w.superseded
	w.outside.Begin(schedule.Draws(o.Seed, 3))
	w.server = model.New(model.Options{Now: w.serverNow, SyncEvery: o.Profile.Syncs(), Told: diskOf(o).Told, Replicas: o.Replicas})
	w.plan.Replicas = o.Replicas
	w.disk = disk.New(w.server, diskOf(o), schedule.Draws(o.Seed, 4))
	for _, m := range o.Machines {
		w.plan.States = append(w.plan.States, m.Plural)
		for _, v := range m.Views {
			w.plan.Views = append(w.plan.Views, m.BucketOf(v))
		}
		for i := range o.Keys {
			parent := ""
			if m.Parent != "" {
				parent = "p"
			}
			w.keys[m.Name] = append(w.keys[m.Name], machines.Key("default", parent, fmt.Sprintf("%c", 'a'+i)))
		}
	}
	if o.Tasks {
		maps.Copy(w.keys, orders.TaskKeys(o.Keys))
	}
	return w
}

// diskOf is how the server in the process of a node is synced.
func diskOf(o schedule.Options) disk.Options {
	d := disk.Options{Groups: !o.Attached && o.Profile == schedule.Fsync, Takes: o.Disk}
	if !o.Attached && o.Profile == schedule.Interval {
		d.Rounds = o.Profile.Syncs()
	}
	return d
}

func (w *World) machine(name string) *machines.Machine {
	for _, m := range w.opts.Machines {
		if m.Name == name {
			return m
		}
	}
	return nil
}

func (w *World) fail(invariant, format string, args ...any) {
	f := trace.Failure{Invariant: invariant, What: fmt.Sprintf(format, args...)}
	w.failures = append(w.failures, f)
	w.trace.Note("INVARIANT", "%s: %s", f.Invariant, f.What)
}

// dialing is how a process, or a client, connects.
func (w *World) dialing(n *node, name string, log *slog.Logger) streams.ConnectOptions {
	o := streams.ConnectOptions{Name: name, Log: log}
	if n != nil && !w.opts.Attached {
		o.Server = n
		return o
	}
	d := dialer{w: w, n: n, name: name}
	o.URL = "nats://127.0.0.1:4222"
	o.Dial = func(opts ...nats.Option) (*nats.Conn, error) {
		return nats.Connect(o.URL, append(opts, nats.SetCustomDialer(d), nats.RetryOnFailedConnect(n == nil))...)
	}
	return o
}

type dialer struct {
	w    *World
	n    *node
	name string
}

// Dial connects to the simulated server.
func (d dialer) Dial(string, string) (net.Conn, error) {
	if d.n != nil {
		return d.n.InProcessConn()
	}
	return d.w.connect(d.name, nil)
}

func (w *World) writes() publish.AppenderOptions {
	return publish.AppenderOptions{Group: w.opts.Attached && w.opts.Profile == schedule.Fsync, Moves: w.opts.Attached, Sync: w.disk.Syncer()}
}

var errServerDown = errors.New("the server is down")

const (
	mostSteps = 200_000
	calmFor   = 3 * time.Minute // until everything has come to rest after the last fault
)

// run is the whole of one run, in a bubble.
func (w *World) run() {
	pinned.Use(nil)
	clocks := schedule.Draws(w.opts.Seed, 7)
	for i := range w.opts.Nodes {
		w.places = append(w.places, &place{name: fmt.Sprintf("node-%d", i), clock: w.wrongClock(clocks)})
	}
	for _, p := range w.places {
		w.boot(p)
	}
	w.until("the streams are there", time.Minute, func() bool { return w.server.Log(streams.BucketStream(streams.OwnersBucket)) != nil }, false)
	w.upAt = w.trace.Steps
	w.startOperator()
	for i := range w.opts.Clients {
		w.clients = append(w.clients, w.startClient(i))
	}
	w.until("the clients are done", 20*time.Minute, w.clientsDone, true)
	w.until("who was stopped has gone on", 2*time.Minute, func() bool { return w.holds.Before(time.Now()) }, true)
	w.calm()
	if w.until("everything has come to rest", calmFor, w.quiet, false) {
		w.check()
	}
	w.end()
}

// answered is how many commands have an answer.
func (w *World) answered() (n int) {
	for _, c := range w.clients {
		for _, rec := range c.log {
			n += min(len(rec.answers), 1)
		}
	}
	return n
}

func (w *World) clientsDone() bool {
	for _, c := range w.clients {
		if !c.done {
			return false
		}
	}
	return true
}

// until takes steps until something holds, and reports whether it did in time.
func (w *World) until(what string, most time.Duration, holds func() bool, faults bool) bool {
	collected := w.trace.Steps
	for began := time.Now(); ; {
		synctest.Wait()
		w.observe()
		if len(w.failures) > 0 {
			return false
		}
		if holds() {
			return true
		}
		if time.Since(began) > most || w.trace.Steps > mostSteps {
			w.fail("I12", "%s: not after %s and %d steps; %s", what, time.Since(began), w.trace.Steps, w.unrest())
			return false
		}
		if faults {
			w.mishap()
		}
		w.tend()
		w.revive()
		w.step()
		if w.trace.Steps-collected >= 20_000 {
			runtime.GC() // nothing else collects (package overlay), and a run that does not come to rest is long
			collected = w.trace.Steps
		}
	}
}

// step lets one thing happen.
func (w *World) step() {
	all := w.choices()
	if len(all) > 0 && (w.opts.Lag == 0 || w.r.IntN(w.opts.Lag) > 0) {
		w.choose(all[w.r.IntN(len(all))])
		return
	}
	d := 250 * time.Millisecond
	if len(all) > 0 {
		d = time.Duration(w.r.Int64N(int64(20 * time.Millisecond)))
	} else if at, ok := w.server.NextTimer(); ok {
		d = min(d, max(at.Sub(w.serverNow()), 0))
	}
	d = w.disk.Next(d)
	w.pass(d, len(all) == 0)
}

// pass lets time pass, or less when something is sent meanwhile and that is what is waited for.
func (w *World) pass(d time.Duration, wakes bool) {
	w.trace.Step("time", "passes", "", nil)
	w.wake.Pass(d, wakes)
	w.server.Advance(w.serverNow())
	w.disk.Tick()
}

// serverNow is what the clock of the server shows, whoever asks: time.Now would show a process its own one.
func (w *World) serverNow() time.Time {
	return w.trace.Began.Add(time.Since(w.trace.Began) + time.Duration(w.clock.Offset))
}
