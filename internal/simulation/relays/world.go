package relays

// The World, and the loop that decides what happens next. All processes run as they would, until they wait; then the loop takes one step: a statement is executed, a packet reaches the server, an answer arrives, time passes, or something goes
// wrong. Which one is drawn from the seed.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/bcc94042/instar/internal/simulation/model"
	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/internal/simulation/shop"
	"github.com/bcc94042/instar/internal/simulation/tables"
	"github.com/bcc94042/instar/internal/simulation/trace"
	"github.com/bcc94042/instar/internal/simulation/wake"
	"github.com/bcc94042/instar/streams"
)

// World is everything that there is in one run.
type World struct {
	o     shop.Options
	r     *rand.Rand
	trace *trace.Trace

	db                *tables.Server
	server            *model.Server
	wake              wake.Wake // something was sent
	places            []*place
	all               []*process // relays that were ever started
	judge             shop.Judge
	operated, settled <-chan struct{} // the operator has ended; nil for none
	dials             sync.Mutex
	wires             []*wire

	clock              pinned.Clock // of the database
	flushed            time.Time
	calmAt             time.Time
	happened           map[int]bool
	passed             map[int]int
	wrong              map[string]int
	dbBack, serverBack time.Time
	fullUntil, electAt time.Time
	lingerUntil        time.Time
	elects             string
	looked             uint64    // of the stream
	latest             time.Time // that the clock of the database has been
	failures           []trace.Failure
	over               atomic.Bool
}

// wire is one connection.
type wire struct {
	db    bool
	id    int
	owner string
	p     *process // nil for an application
	held  time.Time
}

const (
	mostSteps = 100_000
	calmFor   = 5 * time.Minute // until everything has come to rest after the last fault
)

func newWorld(o shop.Options, tr *trace.Trace) *World {
	w := &World{o: o, r: schedule.Draws(o.Seed, 2), trace: tr, wake: wake.New(), happened: map[int]bool{}, passed: map[int]int{}, wrong: map[string]int{}}
	tr.Began = time.Now()
	w.db = tables.New(tables.Options{Now: w.dbNow, Mode: string(o.Mode), Shards: o.Shards})
	w.server = model.New(model.Options{Now: w.now, Replicas: o.Replicas})
	w.judge = shop.Judge{Options: o, Tables: w.db, Fail: func(format string, args ...any) { w.fail("I13", format, args...) }}
	return w
}

func (w *World) now() time.Time { return w.trace.Began.Add(time.Since(w.trace.Began)) }

func (w *World) dbNow() time.Time { return w.now().Add(time.Duration(w.clock.Offset)) }

func (w *World) fail(invariant, format string, args ...any) {
	f := trace.Failure{Invariant: invariant, What: fmt.Sprintf(format, args...)}
	w.failures = append(w.failures, f)
	w.trace.Note("INVARIANT", "%s: %s", f.Invariant, f.What)
}

// run is the whole of one run, in a bubble.
func (w *World) run() {
	pinned.Use(nil)
	w.prepare()
	for i := range w.o.Relays {
		w.places = append(w.places, &place{name: fmt.Sprintf("relay-%d", i), clock: &pinned.Clock{}})
	}
	for i := range w.o.Apps {
		w.judge.Apps = append(w.judge.Apps, w.reach(fmt.Sprintf("app-%d", i)).Start(i))
	}
	if w.o.Operator {
		w.operated = w.reach("operator").Operate(w.judge.Apps)
	}
	if w.until("the applications are done", 20*time.Minute, w.done, true) {
		done := time.Now()
		w.until("what was to go wrong has", 2*time.Minute, func() bool { return w.struck() || time.Since(done) > time.Minute }, true)
	}
	if len(w.failures) == 0 {
		w.calm()
		if w.until("everything has come to rest", calmFor, w.quiet, false) {
			w.judge.Check()
			w.settle()
		}
	}
	w.end()
}

// reach is how an application, or an operator, reaches the database.
func (w *World) reach(name string) shop.Database {
	return shop.Database{
		Options: w.o, DSN: "postgres://app@127.0.0.1/model?sslmode=disable", Now: w.dbNow, Over: &w.over, Note: func(format string, args ...any) { w.trace.Note(name, format, args...) },
		Dial: func(context.Context, string, string) (net.Conn, error) { return w.connect(name, nil, true) },
	}
}

// done says whether applications and the operator have ended.
func (w *World) done() bool {
	all := []<-chan struct{}{w.operated, w.settled}
	for _, a := range w.judge.Apps {
		all = append(all, a.Done())
	}
	for _, done := range all {
		if done == nil {
			continue
		}
		select {
		case <-done:
		default:
			return false
		}
	}
	return true
}

// settle lets an operator do what is left for him: after that nothing waits any more.
func (w *World) settle() {
	stop := make(chan struct{})
	w.settled = w.reach("operator").Settle(stop)
	all := w.until("nothing waits after the operator", calmFor, func() bool { return w.judge.Unrest(true) == "" }, false)
	close(stop)
	if all && w.until("the operator has ended", time.Minute, w.done, false) {
		w.judge.Check()
	}
}

// struck says that all has gone wrong that does not wait for a moment.
func (w *World) struck() bool {
	for i, f := range w.o.Faults {
		if !w.happened[i] && f.At == "" && f.Step > w.trace.Steps {
			return false
		}
	}
	return true
}

// until takes steps until something holds, and reports whether it did in time.
func (w *World) until(what string, most time.Duration, holds func() bool, faults bool) bool {
	for began := time.Now(); ; {
		synctest.Wait()
		w.observe()
		switch {
		case len(w.failures) > 0:
			return false
		case holds():
			return true
		case time.Since(began) > most || w.trace.Steps > mostSteps:
			w.fail("I12", "%s: not after %s and %d steps; %s", what, time.Since(began), w.trace.Steps, w.judge.Unrest(false))
			return false
		}
		if faults {
			w.mishap()
		}
		w.ease()
		w.revive()
		w.step()
	}
}

// choice is one thing that may happen next.
type choice struct {
	x       *wire
	what    string
	data    []byte
	deliver bool
	packet  int
}

func (w *World) choices() (all []choice) {
	w.dials.Lock()
	by := map[[2]int]*wire{}
	for _, x := range w.wires {
		if !x.held.After(time.Now()) {
			by[key(x.db, x.id)] = x
		}
	}
	w.dials.Unlock()
	for _, q := range w.db.Pending() {
		if x := by[key(true, q.Conn)]; x != nil {
			all = append(all, choice{x: x, what: q.What})
		}
	}
	for _, q := range w.db.Outbound() {
		if x := by[key(true, q.Conn)]; x != nil {
			all = append(all, choice{x: x, what: q.What, deliver: true})
		}
	}
	for i, p := range w.server.Pending() {
		if x := by[key(false, p.Conn)]; x != nil {
			all = append(all, choice{x: x, what: p.Subject, data: p.Data, packet: i})
		}
	}
	for _, d := range w.server.Outbound() {
		if x := by[key(false, d.Conn)]; x != nil {
			all = append(all, choice{x: x, what: d.Subject, data: d.Data, deliver: true})
		}
	}
	return all
}

func key(db bool, id int) [2]int {
	if db {
		return [2]int{1, id}
	}
	return [2]int{0, id}
}

// step lets one thing happen.
func (w *World) step() {
	all := w.choices()
	if len(all) > 0 && (w.o.Lag == 0 || w.r.IntN(w.o.Lag) > 0) {
		w.choose(all[w.r.IntN(len(all))])
		return
	}
	d := 250 * time.Millisecond
	if len(all) > 0 {
		d = time.Duration(w.r.Int64N(int64(20 * time.Millisecond)))
	} else if at, ok := w.server.NextTimer(); ok {
		d = min(d, max(at.Sub(w.now()), 0))
	}
	w.trace.Step("time", "passes", "", nil)
	w.wake.Pass(d, len(all) == 0)
	w.server.Advance(w.now())
	if time.Since(w.flushed) > 200*time.Millisecond { // as the database does by itself
		w.flushed = time.Now()
		w.db.Flush()
	}
}

func (w *World) choose(c choice) {
	switch {
	case c.deliver:
		w.trace.Step(c.x.owner, "gets", c.what, c.data)
		if c.x.db {
			w.db.Deliver(c.x.id)
		} else {
			w.server.Deliver(c.x.id)
		}
	case !w.seize(c):
		w.do(c)
	}
}

// do lets something take effect that was sent.
func (w *World) do(c choice) {
	w.trace.Step(c.x.owner, "sends", c.what, c.data)
	if c.x.db {
		w.db.Step(c.x.id)
	} else {
		w.server.Step(c.packet)
	}
}

var errDown = errors.New("nobody answers there")

// connect makes a connection to the database, or to the NATS server.
func (w *World) connect(owner string, p *process, db bool) (net.Conn, error) {
	w.dials.Lock()
	defer w.dials.Unlock()
	if down := w.serverBack; db && w.dbBack.After(time.Now()) || !db && down.After(time.Now()) || w.over.Load() {
		return nil, errDown
	}
	x := &wire{db: db, owner: owner, p: p}
	var c net.Conn
	if db {
		c, x.id = w.db.Dial()
	} else {
		c, x.id = w.server.Dial()
	}
	if p != nil {
		x.held = p.held
	}
	w.wires = append(w.wires, x)
	return w.wake.Link(c), nil
}

// is says whether what somebody sends is that of a moment.
func (c choice) is(moment string) bool {
	switch moment {
	case "event":
		return !c.x.db && strings.HasPrefix(c.what, "outbox.")
	case "marker":
		return !c.x.db && strings.HasPrefix(c.what, "outbox-pos.")
	case "lease":
		return !c.x.db && strings.HasPrefix(c.what, streams.BucketSubject(streams.Names{}.Bucket(streams.OwnersBucket), ""))
	}
	return c.x.db && c.what == moment
}
