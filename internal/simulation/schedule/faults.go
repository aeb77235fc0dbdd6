package schedule

// What goes wrong: a list of faults, each at a step, drawn from the seed. Whoever shrinks a schedule takes faults out of it.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Fault is one thing that goes wrong.
type Fault struct {
	Step int    // not before so many steps
	Kind string // one of the kinds
	Who  int    // which node, connection, or stream
	For  time.Duration
	Lose bool // what is on its way is lost, too

	At  string // the kind of packet that it waits for from then on, one of moments; empty for none
	Nth int    // so many of them pass before
}

func (f Fault) String() string {
	when := fmt.Sprint("at step ", f.Step)
	if f.At != "" {
		when = fmt.Sprintf("with %s %d after step %d", f.At, f.Nth+1, f.Step)
	}
	return fmt.Sprintf("%s(%d) %s for %s, lose %v", f.Kind, f.Who, when, f.For, f.Lose)
}

// kind is one way in which something goes wrong.
type kind struct {
	kind   string
	weight int
	fits   func(o Options) bool // nil always
}

// kinds are what can go wrong; the weights are how often it does, in relation to each other.
var kinds = []kind{
	{"crash", 6, nil},
	{"cut", 3, nil},
	{"stall", 4, nil},
	{"zombie", 10, func(o Options) bool { return o.Nodes > 1 }},
	{"drop", 4, func(o Options) bool { return o.Attached }},
	{"again", 4, nil},
	{"elect", 6, func(o Options) bool { return o.Replicas > 1 }},
	{"restart", 2, nil},
	{"power", 3, func(o Options) bool { return !o.Attached }},
	{"server-power", 3, Options.sleeps},
	{"full", 1, nil},
	{"slow", 2, func(o Options) bool { return !o.Attached && o.Profile != OS }},
	{"step", 2, nil},
	{"server-step", 1, nil},
}

// acts are what an operator may be asked for, likewise.
var acts = []kind{
	{"cordon", 2, nil},
	{"drain", 2, nil},
	{"pause", 3, nil},
	{"redrive", 2, nil},
	{"drop-values", 2, func(o Options) bool { return o.Drops }},
	{"purge", 1, nil},
}

// drawFaults is what goes wrong in a run.
func drawFaults(r *rand.Rand, o Options) []Fault {
	if r.IntN(8) == 0 {
		return nil // now and then nothing does
	}
	all := drawOf(r, o, kinds, 1+r.IntN(6))
	if r.IntN(2) == 0 {
		all = append(all, drawOf(r, o, acts, 1+r.IntN(3))...)
	}
	return all
}

// drawRestore is a backup and its restore, in one of ten seeds: one takes as many steps as all else in a seed.
func drawRestore(r *rand.Rand, o Options) []Fault {
	if r.IntN(10) > 0 {
		return nil
	}
	return []Fault{{Step: r.IntN(span(o)), Kind: "restore", For: time.Duration(r.Int64N(int64(8 * time.Second)))}}
}

// span is how many steps there are to draw from.
func span(o Options) int { return 600 + o.Clients*o.Commands*40 }

// drawOf draws of kinds. A seed has weights of its own: some kinds never happen in it, others often.
func drawOf(r *rand.Rand, o Options, kinds []kind, n int) (all []Fault) {
	weights, total := make([]int, len(kinds)), 0
	for i, k := range kinds {
		if k.fits == nil || k.fits(o) {
			weights[i] = k.weight * []int{0, 1, 1, 5}[r.IntN(4)]
			total += weights[i]
		}
	}
	for total > 0 && len(all) < n {
		at := r.IntN(total)
		for i, k := range kinds {
			if at -= weights[i]; at < 0 {
				all = append(all, Fault{Step: r.IntN(span(o)), Kind: k.kind, Who: r.IntN(64), For: time.Duration(r.Int64N(int64(8 * time.Second))), Lose: r.IntN(2) == 0})
				break
			}
		}
	}
	return all
}

// moments are kinds of packets of a node for which faults wait; the weights are how often.
var moments = []struct {
	at     string
	weight int
	begins string // the subject, without $; empty is that of a value
}{
	{"value", 4, ""},
	{"event", 4, "instar.evt."},
	{"timer", 2, "instar.timer."},
	{"effect", 2, "instar.fx."},
	{"result", 2, "instar.cmd."},
	{"answer", 2, strings.TrimPrefix(streams.BucketSubject(streams.IdempotencyBucket, ""), "$")},
	{"ack", 3, "JS.ACK."},
	{"purge", 1, "JS.API.STREAM.PURGE."},
	{"reset", 1, "JS.API.CONSUMER.RESET."},
	{"slots", 0, strings.TrimPrefix(streams.BucketSubject("slots", ""), "$")}, // of tasks; for aims
}

// Waits reports whether a fault waits for a packet under a subject.
func Waits(o Options, f Fault, subject string) bool {
	for _, m := range moments {
		if m.at == f.At && m.begins != "" {
			return strings.HasPrefix(strings.TrimPrefix(subject, "$"), m.begins)
		}
	}
	return slices.ContainsFunc(o.Machines, func(m *machines.Machine) bool { return strings.HasPrefix(subject, streams.BucketSubject(m.Plural, "")) })
}

// seizures are what may happen to a node at such a moment.
var seizures = []kind{
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
