package simulation

// Faults that wait for a moment. What breaks a protocol is seldom a fault at any step, but one between two certain lines: after a value was written and before its events are, or
// with a write in the hands of a process that is stopped. So some faults strike when a node has the n-th packet of a kind on its way to the server.

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/bcc94042/instar/streams"
)

// moments are kinds of packets of a node, by what their subjects begin with; the weights are how often faults wait for them.
var moments = []struct {
	at     string
	weight int
	is     func(w *World, subject string) bool
}{
	{"value", 4, (*World).isValue},
	{"event", 4, begins("instar.evt.")},
	{"timer", 2, begins("instar.timer.")},
	{"effect", 2, begins("instar.fx.")},
	{"result", 2, begins("instar.cmd.")},
	{"answer", 2, begins(streams.BucketSubject(streams.IdempotencyBucket, ""))},
	{"ack", 3, begins("JS.ACK.")},
	{"purge", 1, begins("JS.API.STREAM.PURGE.")},
	{"reset", 1, begins("JS.API.CONSUMER.RESET.")},
}

func begins(prefix string) func(*World, string) bool {
	return func(_ *World, subject string) bool {
		return strings.HasPrefix(strings.TrimPrefix(subject, "$"), strings.TrimPrefix(prefix, "$"))
	}
}

func (w *World) isValue(subject string) bool {
	for _, m := range w.opts.Machines {
		if strings.HasPrefix(subject, streams.BucketSubject(m.Plural, "")) {
			return true
		}
	}
	return false
}

// seizures are what may happen to a node at such a moment.
var seizures = []struct {
	kind   string
	weight int
	fits   func(o Options) bool
}{
	{"crash", 4, nil},
	{"cut", 2, nil},
	{"stall", 1, nil},
	{"zombie", 4, func(o Options) bool { return o.Nodes > 1 }},
}

// drawMoments is what goes wrong at certain moments of a run.
func drawMoments(r *rand.Rand, o Options) (all []Fault) {
	if r.IntN(3) == 0 {
		return nil
	}
	span := 100 + o.Clients*o.Commands*20
	for range 1 + r.IntN(3) {
		f := Fault{Step: r.IntN(span), Nth: r.IntN(8), For: time.Duration(r.Int64N(int64(8 * time.Second))), Lose: r.IntN(2) == 0}
		f.At = moments[drawn(r, len(moments), func(i int) int { return moments[i].weight })].at
		f.Kind = seizures[drawn(r, len(seizures), func(i int) int {
			if s := seizures[i]; s.fits == nil || s.fits(o) {
				return s.weight
			}
			return 0
		})].kind
		if f.Kind == "zombie" && r.IntN(3) == 0 { // the streams have forgotten its ids when it wakes
			f.For += streams.EventWindow
		}
		all = append(all, f)
	}
	return all
}

// drawn is a random index, by weights.
func drawn(r *rand.Rand, n int, weight func(int) int) int {
	total := 0
	for i := range n {
		total += weight(i)
	}
	at := r.IntN(total)
	for i := range n {
		if at -= weight(i); at < 0 {
			return i
		}
	}
	return n - 1
}

// seize lets a fault strike that has waited for this packet, and reports whether the packet does not go on its way now.
func (w *World) seize(c choice) bool {
	x := w.wireOf(c.conn)
	if x == nil || x.n == nil || !w.calmAt.IsZero() {
		return false
	}
	for i, f := range w.opts.Faults {
		if f.At == "" || w.happened[i] || f.Step > w.trace.Steps-w.upAt || !w.isAt(f.At, c.what) {
			continue
		}
		if w.passed[i]++; w.passed[i] <= f.Nth {
			continue
		}
		w.happened[i] = true
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
		for _, other := range w.wires {
			if other.n == x.n {
				w.hold(other, f.For+4*time.Second)
			}
		}
	}
}

func (w *World) isAt(at, subject string) bool {
	for _, m := range moments {
		if m.at == at {
			return m.is(w, subject)
		}
	}
	return false
}

func (w *World) wireOf(conn int) *wire {
	for _, x := range w.wires {
		if x.id == conn {
			return x
		}
	}
	return nil
}
