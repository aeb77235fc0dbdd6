package simulation

// What the faults of a schedule do (package schedule draws them).

import (
	"math/rand/v2"
	"testing/synctest"
	"time"

	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/internal/simulation/schedule"
)

// Fault is one thing that goes wrong.
type Fault = schedule.Fault

// faults are what the kinds of faults do.
var faults = map[string]func(w *World, f Fault){
	"crash":        crashNode,
	"cut":          cutWire,
	"stall":        stallWire,
	"zombie":       stallNode,
	"drop":         dropAnswer,
	"again":        deliverAgain,
	"elect":        loseLeader,
	"restart":      restartServer,
	"power":        losePower,
	"server-power": losePower,
	"full":         fillStore,
	"slow":         slowDisk,
	"step":         stepClock,
	"server-step":  stepServer,
}

// mishap lets happen what is due.
func (w *World) mishap() {
	for i, f := range w.opts.Faults {
		if w.happened[i] || f.At != "" || f.Step > w.trace.Steps-w.upAt || f.Kind == "power" && f.Lose && w.disk.Clean() {
			continue
		}
		w.happened[i] = true
		w.count(f.Kind)
		w.trace.Step("FAULT", f.Kind, f.String(), nil)
		do := faults[f.Kind]
		if do == nil {
			do = acts[f.Kind]
		}
		do(w, f)
	}
	w.ease()
}

// ease ends what has lasted long enough.
func (w *World) ease() {
	if !w.fullUntil.IsZero() && time.Now().After(w.fullUntil) {
		w.fullUntil = time.Time{}
		w.server.SetFull(false)
		w.trace.Note("FAULT", "there is room again")
	}
	for len(w.elections) > 0 && time.Now().After(w.elections[0].at) {
		w.trace.Note("FAULT", "%s elects a leader", w.elections[0].stream)
		w.server.Elect(w.elections[0].stream)
		w.elections = w.elections[1:]
	}
	if w.serverDown && time.Now().After(w.serverBack) {
		w.serverDown = false
		w.trace.Note("FAULT", "the server is up again")
	}
}

// crash ends a process at once: its connections break, nothing that it does afterwards reaches anybody, and its goroutines end when they find out.
func (w *World) crash(n *node, lose bool) {
	n.mu.Lock()
	n.dead = true
	n.mu.Unlock()
	for i := len(w.wires) - 1; i >= 0; i-- {
		if x := w.wires[i]; x.n == n {
			w.cut(x, lose)
		}
	}
	n.cancel()
	if n.place.now == n {
		n.place.now = nil
	}
}

func (w *World) someNode(who int) *node {
	var up []*node
	for _, p := range w.places {
		if p.now != nil {
			up = append(up, p.now)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[who%len(up)]
}

func (w *World) someWire(who int) *wire {
	if len(w.wires) == 0 {
		return nil
	}
	return w.wires[who%len(w.wires)]
}

func crashNode(w *World, f Fault) {
	if n := w.someNode(f.Who); n != nil {
		n.place.again = time.Now().Add(f.For)
		w.crash(n, f.Lose)
	}
}

func cutWire(w *World, f Fault) {
	if x := w.someWire(f.Who); x != nil {
		w.cut(x, f.Lose)
	}
}

func stallWire(w *World, f Fault) {
	if x := w.someWire(f.Who); x != nil {
		w.hold(x, f.For)
	}
}

// stallNode stops a process: what it has sent goes on its way later, when others may have taken its place.
func stallNode(w *World, f Fault) {
	if n := w.someNode(f.Who); n != nil {
		w.holdNode(n, f.For)
	}
}

func dropAnswer(w *World, f Fault) {
	if out := w.server.Outbound(); len(out) > 0 {
		w.server.Drop(out[f.Who%len(out)].Conn)
	}
}

// deliverAgain is a server whose clock says that a consumer has waited for its acks long enough.
func deliverAgain(w *World, f Fault) {
	if name := w.server.Redeliver(f.Who); name != "" {
		w.trace.Note("FAULT", "what %s waits for is delivered again", name)
	}
}

// loseLeader leaves a stream without a leader, and has another one elected.
func loseLeader(w *World, f Fault) {
	all := w.server.Streams()
	if len(all) == 0 {
		return
	}
	name := all[f.Who%len(all)]
	w.trace.Note("FAULT", "%s has no leader", name)
	w.server.LoseLeader(name)
	w.elections = append(w.elections, election{name, time.Now().Add(f.For / 2)})
}

// election is a stream without a leader, and when it gets one.
type election struct {
	stream string
	at     time.Time
}

func restartServer(w *World, f Fault) {
	if !w.opts.Attached { // it is in the process of the node
		crashNode(w, f)
	}
	w.server.Restart()
	w.disk.Lost()
	w.wires = nil
	w.serverDown, w.serverBack = true, time.Now().Add(f.For/4)
}

// losePower ends the machine of the server, and the node with it where that has it in its process: each stream keeps what was synced, and some of what was not.
func losePower(w *World, f Fault) {
	if w.opts.Attached { // the nodes live, and have in memory what is gone
		w.serverDown, w.serverBack = true, time.Now().Add(f.For/4)
	} else {
		crashNode(w, f)
	}
	r := schedule.Draws(w.opts.Seed, uint64(f.Step)+1<<32)
	cost := false
	w.server.PowerLoss(func(stream string, synced, last uint64) uint64 {
		if last <= synced {
			return last
		}
		kept := synced + r.Uint64N(last-synced+1)
		if kept < last {
			cost = true
			w.trace.Note("FAULT", "%s keeps %d of %d, %d were synced", stream, kept, last, synced)
		}
		return kept
	}, func(string, uint64) bool { return r.IntN(2) == 0 })
	w.disk.Lost()
	w.wires = nil
	w.lost = w.lost || cost && w.opts.Profile != schedule.Fsync // where nothing is lost that anybody was told
	if cost {
		w.history.cut(w)
		w.wantAgain()
	}
}

// slowDisk lets no sync end for a time.
func slowDisk(w *World, f Fault) {
	w.slowUntil = time.Now().Add(f.For)
	w.disk.Slow(w.slowUntil)
}

func fillStore(w *World, f Fault) {
	w.server.SetFull(true)
	w.fullUntil = time.Now().Add(f.For)
}

func stepClock(w *World, f Fault) {
	if n := w.someNode(f.Who); n != nil {
		n.place.clock.Offset += int64(f.For) * int64(1-2*(f.Who/8%2)) * 10 // the lowest bits choose the node
	}
}

// stepServer steps the clock of the server: forward, which fires what is due, or back, so that what comes next is stamped with times of before.
func stepServer(w *World, f Fault) {
	if f.Who%2 == 0 {
		w.clock.Offset += int64(f.For)
		return
	}
	w.trace.Note("FAULT", "the clock of the server goes back")
	w.server.SetBack(10 * f.For)
}

// wrongClock is one that is off from the start: by seconds, by an hour, or by a year, ahead or behind. That of the server is not.
func (w *World) wrongClock(r *rand.Rand) *pinned.Clock {
	off := []time.Duration{0, 10 * time.Second, time.Hour, 365 * 24 * time.Hour}[r.IntN(4)]
	if !w.opts.Skew || off == 0 {
		return &pinned.Clock{}
	}
	w.count("skew")
	return &pinned.Clock{Offset: r.Int64N(2*int64(off)) - int64(off)}
}

// count counts what has gone wrong.
func (w *World) count(kind string) {
	w.wrong[kind]++
	w.wrongAt = time.Now()
}

// revive starts processes where none runs.
func (w *World) revive() {
	for _, p := range w.places {
		if p.now != nil {
			select {
			case <-p.now.done: // it has ended by itself
				n := p.now
				w.crash(n, true)
				p.again = time.Now().Add(time.Second)
			default:
			}
		}
		if p.now == nil && !w.over && !time.Now().Before(p.again) && !w.serverDown && !w.restoring {
			w.trace.Step(p.name, "starts", "", nil)
			w.boot(p)
		}
	}
	w.ease()
}

// calm ends everything that is wrong.
func (w *World) calm() {
	w.outside.Calm()
	w.calmAt = time.Now()
	w.fullUntil, w.serverBack = time.Now().Add(-1), time.Now().Add(-1)
	w.slowUntil = time.Time{}
	w.disk.Slow(w.slowUntil)
	for i := range w.elections {
		w.elections[i].at = time.Now().Add(-1)
	}
	w.ease()
	for _, x := range w.wires {
		x.held = time.Time{}
	}
	for _, p := range w.places {
		if p.now != nil {
			p.now.held = time.Time{}
		}
		p.again = time.Time{}
	}
	w.trace.Note("FAULT", "nothing goes wrong from now on")
}

// end lets everything come to an end, so that the bubble can.
func (w *World) end() {
	if w.calmAt.IsZero() {
		w.calm()
	}
	w.over, w.trace.On = true, w.trace.Live
	for _, p := range w.places {
		if p.now != nil {
			w.crash(p.now, true)
		}
	}
	w.serverDown = true
	w.server.Close()
	if w.operator != nil {
		w.operator.End()
	}
	stop := time.After(10 * time.Minute)
	for _, n := range w.processes {
		select {
		case <-n.done:
		case <-stop:
			w.fail("I14", "%s does not end", n.nonce)
			return
		}
	}
	for synctest.Wait(); !w.clientsDone() || w.operator != nil && !w.operator.Done; synctest.Wait() {
		time.Sleep(time.Second)
	}
	time.Sleep(time.Minute) // for what the libraries leave to themselves
}
