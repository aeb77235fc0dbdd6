package simulation

// Faults that wait for a moment. What breaks a protocol is seldom a fault at any step, but one between two certain lines: after a value was written and before its events are, or
// with a write in the hands of a process that is stopped. So some faults strike when a node has the n-th packet of a kind on its way to the server.

import (
	"slices"
	"time"

	"github.com/bcc94042/instar/internal/simulation/schedule"
)

// seize lets a fault strike that has waited for this packet, and reports whether the packet does not go on its way now.
func (w *World) seize(c choice) bool {
	x := w.wireOf(c.conn)
	if x == nil || x.n == nil || !w.calmAt.IsZero() {
		return false
	}
	for i, f := range w.opts.Faults {
		if f.At == "" || w.happened[i] || f.Step > w.trace.Steps-w.upAt || !schedule.Waits(w.opts, f, c.what) {
			continue
		}
		if w.passed[i]++; w.passed[i] <= f.Nth {
			continue
		}
		w.happened[i] = true
		w.count(f.Kind)
		w.trace.Step("FAULT", f.Kind, f.String(), nil)
		w.strike(f, x, c)
		return true
	}
	return false
}

// strike lets a fault happen to the node that has a packet on its way.
func (w *World) strike(f Fault, x *wire, c choice) {
	if !f.Lose && (f.Kind == "crash" || f.Kind == "cut") { // the packet arrives yet, and its answer does not
		w.trace.Step(x.owner, "sends", c.what, c.data)
		w.server.Step(c.packet)
	}
	switch f.Kind {
	case "crash":
		x.n.place.again = time.Now().Add(f.For)
		w.crash(x.n, f.Lose)
	case "cut":
		w.cut(x, f.Lose)
	case "stall":
		w.hold(x, f.For)
	case "zombie":
		w.holdNode(x.n, f.For)
	}
}

func (w *World) wireOf(conn int) *wire {
	i := slices.IndexFunc(w.wires, func(x *wire) bool { return x.id == conn })
	if i < 0 {
		return nil
	}
	return w.wires[i]
}
