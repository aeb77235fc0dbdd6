// Package disk is the disk below a simulated server that is in a node's process, synced as streams/embedded does it. With groups, which the profile fsync has, whoever has written asks,
// and one sync is for all who have asked while the last one was under way (ADR 21), but buckets are synced with each write. In rounds, which the profile interval has, all streams are synced together (ADR 15): values and what
// entities emit first, in any order, and then the commands, while acks are held back ([Disk.Acking]). When a sync ends, its driver says, which draws it: [Disk.UnderWay] are those that
// may, and [Disk.End] ends one. Meanwhile the power may go; then [Disk.Lost] tells whoever waits that nothing comes of it.
//
// Processes call Sync and hold Acking; everything else is for the driver. Who waits blocks on channels only, which a bubble of testing/synctest knows as waiting.
package disk

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/simulation/model/core"
	"github.com/bcc94042/instar/streams"
)

// Server is what the disk needs of package model.
type Server interface {
	Streams() []string
	Written(stream string) (m core.Mark, synced bool)
	SyncTo(stream string, m core.Mark)
}

// Options say how a disk is synced. Without groups and rounds that is left to the server.
type Options struct {
	Groups bool
	Rounds time.Duration // from one to the next; 0 has none
	Takes  time.Duration // the longest that a sync takes, while the disk is not slow
}

// Told reports whether a stream is synced only when the disk says so. With groups, buckets are synced with each write.
func (o Options) Told(stream string) bool {
	_, bucket := streams.BucketOf(stream)
	return o.Groups && !bucket || o.Rounds > 0
}

// Disk is what is being synced, and who waits for it.
type Disk struct {
	server Server
	o      Options
	r      *rand.Rand
	slow   time.Time // no sync ends before

	mu     sync.Mutex
	groups map[string]*group // under fsync, by stream
	names  []string          // of the groups, as they came

	gate  gate
	began time.Time // of the last round, under interval
	ends  time.Time // not before: what is synced next
	left  []string  // what is still to be synced in this round; nothing is that there is none
}

// group is who waits for syncs of a stream.
type group struct {
	waiting []func(error) // for the next one
	busy    []func(error) // for the one that is under way; nil without one
	mark    core.Mark     // what that one covers
	ends    time.Time     // not before
}

var errGone = errors.New("the server has stopped")

// New is a disk on which nothing is being synced; what a sync takes is drawn from r.
func New(s Server, o Options, r *rand.Rand) *Disk {
	return &Disk{server: s, o: o, r: r, groups: map[string]*group{}}
}

// Slow lets no sync end before a time.
func (d *Disk) Slow(until time.Time) { d.slow = until }

// Acking is held while a command is acked; nil needs nothing.
func (d *Disk) Acking() sync.Locker {
	if d.o.Rounds == 0 {
		return nil
	}
	return &d.gate
}

// Syncer is how writers ask; nil where an ack says it all.
func (d *Disk) Syncer() func(stream string, done func(error)) {
	if !d.o.Groups {
		return nil
	}
	return d.sync
}

// sync calls done when everything is on disk that the stream had when it was called.
func (d *Disk) sync(stream string, done func(error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.groups[stream]
	if g == nil {
		g = &group{}
		d.groups[stream] = g
		d.names = append(d.names, stream)
	}
	g.waiting = append(g.waiting, done)
	d.start(stream, g)
}

// start begins the next sync of a stream, if none is under way.
func (d *Disk) start(stream string, g *group) {
	if g.busy == nil && len(g.waiting) > 0 {
		g.busy, g.waiting = g.waiting, nil
		g.mark, _ = d.server.Written(stream)
		g.ends = d.takes()
	}
}

// takes is when a sync that begins now ends.
func (d *Disk) takes() time.Time {
	return time.Now().Add(time.Duration(d.r.Int64N(int64(d.o.Takes) + 1)))
}

// Next is in how long a sync may end, if that is before a time is over.
func (d *Disk) Next(most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	until := time.Now().Add(most)
	if len(d.left) > 0 && d.gate.shut() && d.ends.Before(until) { // who holds the gate may wait for a time
		until = d.ends
	}
	for _, name := range d.names {
		if g := d.groups[name]; g.busy != nil && g.ends.Before(until) {
			until = g.ends
		}
	}
	if until.Before(d.slow) {
		until = d.slow
	}
	return min(most, max(time.Until(until), 0))
}

// UnderWay are the streams whose sync may end next.
func (d *Disk) UnderWay() (all []string) {
	if d.slow.After(time.Now()) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.names {
		if g := d.groups[name]; g.busy != nil && !g.ends.After(time.Now()) {
			all = append(all, name)
		}
	}
	if len(d.left) > 0 && d.gate.shut() && !d.ends.After(time.Now()) {
		rest := d.left
		if len(rest) > 1 {
			rest = rest[:len(rest)-1] // the commands come last
		}
		all = append(all, rest...)
	}
	return all
}

// End ends a sync of a stream.
func (d *Disk) End(stream string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.o.Rounds > 0 {
		mark, _ := d.server.Written(stream)
		d.server.SyncTo(stream, mark)
		d.ends = d.takes()
		for i := range d.left {
			if d.left[i] == stream {
				d.left = append(d.left[:i:i], d.left[i+1:]...)
				break
			}
		}
		if len(d.left) == 0 {
			d.gate.open()
		}
		return
	}
	g := d.groups[stream]
	d.server.SyncTo(stream, g.mark)
	go tell(g.busy, nil)
	g.busy = nil
	d.start(stream, g)
}

func tell(all []func(error), err error) {
	for _, done := range all {
		done(err)
	}
}

// Clean reports whether everything is on disk.
func (d *Disk) Clean() bool {
	for _, name := range d.server.Streams() {
		if _, synced := d.server.Written(name); !synced {
			return false
		}
	}
	return true
}

// Tick begins what is due: under fsync a sync of what nobody has asked for, under interval a round.
func (d *Disk) Tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.o.Groups:
		for _, name := range d.names {
			if _, synced := d.server.Written(name); !synced && d.groups[name].busy == nil {
				d.groups[name].waiting = append(d.groups[name].waiting, func(error) {})
				d.start(name, d.groups[name])
			}
		}
	case d.o.Rounds > 0:
		if len(d.left) > 0 || time.Since(d.began) < d.o.Rounds {
			return
		}
		d.began, d.ends = time.Now(), d.takes()
		last := ""
		for _, name := range d.server.Streams() {
			if _, synced := d.server.Written(name); synced {
				continue
			}
			if name == streams.CommandStream {
				last = name
				continue
			}
			d.left = append(d.left, name)
		}
		if d.left = append(d.left, last); last == "" {
			d.left[len(d.left)-1] = streams.CommandStream // it may be written meanwhile
		}
		if len(d.left) == 1 && last == "" {
			d.left = nil
			return
		}
		d.gate.close()
	}
}

// Lost ends all that is under way: the server has ended.
func (d *Disk) Lost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.names {
		go tell(append(d.groups[name].busy, d.groups[name].waiting...), errGone)
	}
	clear(d.groups)
	d.names, d.left = nil, nil
	d.gate.open()
}

// gate is closed while a round syncs; whoever acks waits meanwhile, and it waits for whoever acks. It blocks on channels only, which a bubble of synctest knows as waiting.
type gate struct {
	mu      sync.Mutex
	opened  chan struct{} // nil while it is open
	holding int
}

// Lock waits until the gate is open, and holds it.
func (g *gate) Lock() {
	for {
		g.mu.Lock()
		opened := g.opened
		if opened == nil {
			g.holding++
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		<-opened
	}
}

// Unlock lets go of it.
func (g *gate) Unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding--
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// shut reports whether it is closed and nobody holds it.
func (g *gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened != nil && g.holding == 0
}
