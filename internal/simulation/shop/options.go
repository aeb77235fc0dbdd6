package shop

// What happens in a run: a seed gives Options, which say how much of everything there is and which faults strike when.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/streams/outbox"
)

// Options are a schedule. [Draw] makes them of a seed; whoever shrinks a schedule takes away from them.
type Options struct {
	Seed       uint64
	Mode       outbox.Mode
	Shards     int
	Relays     int
	Replicas   int // of the stream: 1 or 3
	Fsync      bool
	Batch      int
	Apps       int
	Turns      int // transactions of each application
	Aggregates int
	Pace       time.Duration // the longest pause of an application
	Async      bool          // some applications do not wait for the disk of the database
	Strange    bool          // some events are of a type that the relay does not publish
	Later      bool          // some events are not to be published before a time
	Forgets    bool          // the stream remembers ids for a moment only
	Operator   bool          // somebody redrives and discards rows meanwhile
	Haste      int           // all waits are so many times shorter; 0 is 1
	Lag        int           // one in so many steps lets time pass while something is on its way; 0 never
	Faults     []Fault
}

// Fault is one thing that goes wrong; At is a statement, or a subject, that it waits for.
type Fault = schedule.Fault

// CutsOff says whether a kind of fault can keep a relay from saying what has become of a row that it has claimed.
func CutsOff(kind string) bool {
	return slices.Contains([]string{"crash", "cut", "stall", "zombie", "linger", "crash-db", "set-back"}, kind)
}

// kinds are what can go wrong, each as often as it is in the list.
var kinds = strings.Fields("crash crash crash cut cut cut stall zombie zombie zombie linger drop elect restart full crash-db crash-db set-back step step-db stop")

// moments are statements and subjects at which a fault strikes.
var moments = strings.Fields("enter raise raise note saveCursor park wait published countTries promote heads takeOut readAll fence flushLog claim claim markSent markSent settleSent settleLeases markFailed release append append commit commit event event event marker marker marker lease reclaim generation savedPosition notedMarker late")

// Draw is the schedule of a seed.
func Draw(seed uint64) Options {
	r := schedule.Draws(seed, 1)
	o := Options{
		Seed: seed, Mode: []outbox.Mode{outbox.Log, outbox.Log, outbox.Claim}[r.IntN(3)], Shards: 1 + r.IntN(3), Relays: 1 + r.IntN(3), Replicas: []int{1, 1, 3}[r.IntN(3)], Fsync: r.IntN(3) == 0,
		Batch: []int{1, 3, 10, 0}[r.IntN(4)], Apps: 1 + r.IntN(3), Turns: 4 + r.IntN(10), Aggregates: 1 + r.IntN(5), Pace: []time.Duration{100 * time.Millisecond, time.Second, 4 * time.Second}[r.IntN(3)],
		Async: r.IntN(3) == 0, Strange: r.IntN(3) == 0, Later: r.IntN(4) == 0, Forgets: r.IntN(2) == 0, Lag: []int{0, 20, 100}[r.IntN(3)], Operator: r.IntN(3) == 0,
	}
	if r.IntN(8) > 0 { // now and then nothing goes wrong
		o.Faults = drawFaults(r, o)
	}
	return o
}

func drawFaults(r *rand.Rand, o Options) (all []Fault) {
	span := 300 + o.Apps*o.Turns*60
	only := kinds
	if r.IntN(3) == 0 { // little else
		only = []string{kinds[r.IntN(len(kinds))], kinds[r.IntN(len(kinds))]}
	}
	for range 1 + r.IntN(8) {
		f := Fault{Step: r.IntN(span), Kind: only[r.IntN(len(only))], Who: r.IntN(64), For: time.Duration(r.Int64N(int64(8 * time.Second))), Lose: r.IntN(2) == 0}
		if (f.Kind == "crash" || f.Kind == "cut" || f.Kind == "stall" || f.Kind == "zombie" || f.Kind == "linger" || f.Kind == "crash-db" || f.Kind == "set-back") && r.IntN(2) == 0 {
			f.At, f.Nth = moments[r.IntN(len(moments))], r.IntN(6)
		}
		if (f.Kind == "crash" || f.Kind == "zombie") && r.IntN(6) == 0 { // the stream has forgotten its ids when it is back
			f.For += 3 * time.Minute
		}
		all = append(all, f)
	}
	return all
}

// Aimed is a schedule in which one kind of fault strikes, at one moment: kind@moment, or kind; empty leaves what was drawn.
func (o Options) Aimed(what string) Options {
	if what == "" {
		return o
	}
	kind, at, _ := strings.Cut(what, "@")
	r := schedule.Draws(o.Seed, 3)
	o.Faults, o.Turns = nil, o.Turns+8
	for range 1 + r.IntN(4) {
		f := Fault{Step: r.IntN(o.Apps * o.Turns * 60), Kind: kind, Who: r.IntN(64), For: time.Duration(r.Int64N(int64(16 * time.Second))), Lose: r.IntN(2) == 0, At: at}
		if at != "" {
			f.Nth = r.IntN(4)
		}
		o.Faults = append(o.Faults, f)
	}
	return o
}

// Aims reports what [Options.Aimed] knows nothing of.
func Aims(what string) error { return schedule.Known(what, kinds, moments) }

// Smaller are schedules with a little less in them.
func (o Options) Smaller() (all []Options) {
	for i := range o.Faults {
		c := o
		c.Faults = append(append([]Fault{}, o.Faults[:i]...), o.Faults[i+1:]...)
		all = append(all, c)
	}
	for _, change := range []func(*Options){
		func(c *Options) { c.Relays = max(1, c.Relays-1) }, func(c *Options) { c.Apps = max(1, c.Apps-1) }, func(c *Options) { c.Turns = max(1, c.Turns/2) }, func(c *Options) { c.Turns = max(1, c.Turns-1) },
		func(c *Options) { c.Shards = 1 }, func(c *Options) { c.Aggregates = max(1, c.Aggregates-1) }, func(c *Options) { c.Replicas = 1 }, func(c *Options) { c.Fsync = false },
		func(c *Options) { c.Async = false }, func(c *Options) { c.Strange = false }, func(c *Options) { c.Later = false }, func(c *Options) { c.Forgets = false }, func(c *Options) { c.Operator = false }, func(c *Options) { c.Lag = 0 }, func(c *Options) { c.Batch = 0 },
	} {
		c := o
		if change(&c); fmt.Sprint(c) != fmt.Sprint(o) {
			all = append(all, c)
		}
	}
	return all
}

// short is a wait in the haste of the options.
func (o Options) short(d time.Duration) time.Duration { return d / time.Duration(max(o.Haste, 1)) }
