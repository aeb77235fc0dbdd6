package simulation

// The disk below a server that is in a node's process, synced as streams/embedded does it. Under the profile fsync whoever has written asks, and one sync is for all who have asked
// while the last one was under way (ADR 21). Under the profile interval all streams are synced together (ADR 15): values and what entities
// emit first, in any order, and then the commands, while acks are held back. When each sync ends is drawn by the loop; meanwhile the power may go.

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/simulation/model/core"
	"github.com/bcc94042/instar/streams"
)

// disk is what is being synced, and who waits for it. Processes ask it, and the loop ends its syncs.
type disk struct {
	w    *World
	r    *rand.Rand
	slow time.Time // no sync ends before

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

var errDiskGone = errors.New("the server has stopped")

func newDisk(w *World) *disk {
	return &disk{w: w, r: draws(w.opts.Seed, 4), groups: map[string]*group{}}
}

// told reports whether a stream is synced only when it is told to.
func (o Options) told(string) bool { return !o.Attached && o.Profile != OS }

// syncer is how writers ask; nil where an ack says it all.
func (w *World) syncer() func(stream string, done func(error)) {
	if w.opts.Attached || w.opts.Profile != Fsync {
		return nil
	}
	return w.disk.sync
}

// sync calls done when everything is on disk that the stream had when it was called.
func (d *disk) sync(stream string, done func(error)) {
	if !d.w.opts.told(stream) {
		done(nil)
		return
	}
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
func (d *disk) start(stream string, g *group) {
	if g.busy == nil && len(g.waiting) > 0 {
		g.busy, g.waiting = g.waiting, nil
		g.mark, _ = d.w.server.Written(stream)
		g.ends = d.takes()
	}
}

// takes is when a sync that begins now ends.
func (d *disk) takes() time.Time {
	return time.Now().Add(time.Duration(d.r.Int64N(int64(d.w.opts.Disk) + 1)))
}

// next is in how long a sync may end, if that is before a time is over.
func (d *disk) next(most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	until := time.Now().Add(most)
	if len(d.left) > 0 && d.ends.Before(until) {
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

// underWay are the streams whose sync may end next.
func (d *disk) underWay() (all []string) {
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

// end ends a sync of a stream.
func (d *disk) end(stream string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.w.opts.Profile == Interval {
		mark, _ := d.w.server.Written(stream)
		d.w.server.SyncTo(stream, mark)
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
	d.w.server.SyncTo(stream, g.mark)
	go tell(g.busy, nil)
	g.busy = nil
	d.start(stream, g)
}

func tell(all []func(error), err error) {
	for _, done := range all {
		done(err)
	}
}

// clean reports whether everything is on disk.
func (d *disk) clean() bool {
	for _, name := range d.w.server.Streams() {
		if _, synced := d.w.server.Written(name); !synced {
			return false
		}
	}
	return true
}

// tick begins what is due: under fsync a sync of what nobody has asked for, under interval a round.
func (d *disk) tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.w.opts.Profile {
	case Fsync:
		for _, name := range d.names {
			if _, synced := d.w.server.Written(name); !synced && d.groups[name].busy == nil {
				d.groups[name].waiting = append(d.groups[name].waiting, func(error) {})
				d.start(name, d.groups[name])
			}
		}
	case Interval:
		if len(d.left) > 0 || time.Since(d.began) < d.w.opts.Profile.syncs() {
			return
		}
		d.began, d.ends = time.Now(), d.takes()
		last := ""
		for _, name := range d.w.server.Streams() {
			if _, synced := d.w.server.Written(name); synced {
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

// lost ends all that is under way: the server has ended.
func (d *disk) lost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.names {
		go tell(append(d.groups[name].busy, d.groups[name].waiting...), errDiskGone)
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
