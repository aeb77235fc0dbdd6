// Package schedule draws what happens in a run of the simulation: a seed gives [Options], which say how much of everything there is and which faults strike when. What a fault does to
// the world is that of package simulation.
package schedule

import (
	"math/rand/v2"
	"time"

	"github.com/bcc94042/instar/internal/simulation/orders"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/all"
)

// Profile says what the simulated disk keeps.
type Profile string

// The profiles, as package streams/embedded has them.
const (
	Fsync    Profile = "fsync"
	Interval Profile = "interval"
	OS       Profile = "os"
)

// Syncs is how often the server syncs what was written.
func (p Profile) Syncs() time.Duration {
	switch p {
	case Interval:
		return 100 * time.Millisecond
	case OS:
		return 2 * time.Minute
	}
	return 0
}

// Options are a schedule: a seed, and how much of everything there is. [Draw] makes them of a seed; whoever shrinks a schedule takes away from them.
type Options struct {
	Seed     uint64
	Nodes    int
	Clients  int
	Commands int           // of each client
	Pace     time.Duration // the longest pause of a client
	Keys     int           // entities of each machine
	Profile  Profile
	Attached bool          // the server is another process, which the nodes share; else there is one node, and the server is in it
	Replicas int           // of each stream, of a server that is not embedded: 1 or 3
	Skew     bool          // wall clocks of nodes and clients are wrong from the start
	Drops    bool          // values of what has ended are dropped soon
	Lies     bool          // providers are slow, fail, hang, panic and lie
	Disk     time.Duration // the longest that a sync takes, while the disk is not slow
	Lag      int           // one in so many steps lets time pass while something is on its way; 0 never
	Faults   []Fault
	Tasks    bool                // are queued and run: clients ask for that, and an orchestrator is one of the roles
	Machines []*machines.Machine `json:"-"`
}

// Draw is the schedule of a seed.
func Draw(seed uint64) Options {
	r := Draws(seed, 1)
	o := Options{
		Seed: seed, Nodes: 1, Clients: 1 + r.IntN(4), Commands: 4 + r.IntN(16), Pace: 400 * time.Millisecond, Keys: 1 + r.IntN(3), Profile: Fsync,
		Lies: r.IntN(3) > 0, Lag: []int{0, 20, 100}[r.IntN(3)], Machines: []*machines.Machine{orders.Things},
	}
	if r.IntN(3) == 0 {
		o.Machines = append(o.Machines, all.Machines()...)
	}
	if len(o.Machines) > 1 && Draws(seed, 10).IntN(2) == 0 {
		o = withTasks(o)
	}
	if r.IntN(2) == 0 {
		o.Attached, o.Nodes, o.Replicas = true, 1+r.IntN(3), []int{1, 3}[r.IntN(2)]
	} else {
		o.Profile = []Profile{Fsync, Interval, OS}[r.IntN(3)]
	}
	if o.Attached && o.Replicas == 1 && Draws(seed, 9).IntN(2) == 0 {
		o.Profile = OS
	}
	o.Disk = []time.Duration{0, time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond}[r.IntN(4)]
	o.Drops = r.IntN(4) == 0
	o.Skew = Draws(seed, 7).IntN(3) == 0
	o.Faults = append(drawFaults(r, o), drawMoments(Draws(seed, 5), o)...)
	if o.Tasks {
		return o // the bucket of slots is none of the plan, and the model has no snapshots, of which a backup of it is made
	}
	o.Faults = append(o.Faults, drawRestore(Draws(seed, 8), o)...)
	return o
}

// withTasks has tasks queued and run, for long enough that several of them wait for each other.
func withTasks(o Options) Options {
	o.Tasks, o.Machines, o.Commands = true, orders.TaskMachines(), 2*o.Commands+10
	return o
}

// sleeps reports whether the server is one of its own that syncs now and then, so that it may lose the end of its streams beside nodes that live.
func (o Options) sleeps() bool { return o.Attached && o.Replicas == 1 && o.Profile == OS }

// Smaller are schedules with a little less in them.
func Smaller(o Options) (all []Options) {
	for i := range o.Faults {
		c := o
		c.Faults = append(append([]Fault{}, o.Faults[:i]...), o.Faults[i+1:]...)
		all = append(all, c)
	}
	less := func(change func(*Options)) {
		c := o
		change(&c)
		all = append(all, c)
	}
	if o.Clients > 1 {
		less(func(c *Options) { c.Clients-- })
	}
	if o.Commands > 1 {
		less(func(c *Options) { c.Commands /= 2 })
		less(func(c *Options) { c.Commands-- })
	}
	if o.Lies {
		less(func(c *Options) { c.Lies = false })
	}
	if o.Replicas > 1 {
		less(func(c *Options) { c.Replicas = 1 })
	}
	if o.Skew {
		less(func(c *Options) { c.Skew = false })
	}
	if o.Lag > 0 {
		less(func(c *Options) { c.Lag = 0 })
	}
	if len(o.Machines) > 1 {
		less(func(c *Options) { c.Machines, c.Tasks = c.Machines[:1], false })
	}
	if o.Nodes > 1 {
		less(func(c *Options) { c.Nodes-- })
	}
	return all
}

// Draws is a source of randomness of a seed, one of many: what tells them apart.
func Draws(seed, what uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, what)) }
