package embedded

// Syncing the streams of a single server in groups, under the profile Fsync. Whoever has the server's acks of a stream calls Server.Sync, and is called back when what
// was acknowledged is on disk: one fsync is for all that have called while the one before it was under way. See ADR 21.

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/streams"
)

// flushEvery is how often relaxed streams are looked at for what was written by others than those that call [Server.Sync], whose acks come before it is on disk.
const flushEvery = 5 * time.Millisecond

// restAfter is how long nobody has asked for a stream when the server syncs each write to it again, and it is not looked at any more.
const restAfter = time.Second

// errStopped is why nothing is synced while there is no server.
var errStopped = errors.New("streams: the embedded NATS server does not run")

// errNoStream is why a stream is not synced that there is not.
var errNoStream = errors.New("streams: cannot find the store of a stream")

// flusher relaxes stores that sync each write to stores that sync when they are told to, and tells them.
type flusher struct {
	rounds
	where   *stores
	running func() *server.Server
	syncs   atomic.Uint64

	first chan struct{} // gets one when a stream is relaxed

	mu     sync.Mutex
	groups map[string]*group // by stream, of those that are relaxed
}

// group is who waits for the next sync of a stream.
type group struct {
	waiting []func(error)
	asked   time.Time // last
	busy    bool      // a goroutine syncs, and takes what waits when it has
}

// sweep syncs what others have written to relaxed streams, and ends that of those that nobody has asked for lately. It waits for no lock of a store: one that is held is asked like
// one that is dirty. It reports whether a stream is left.
func (f *flusher) sweep(now time.Time) bool {
	f.mu.Lock()
	var names []string
	for name, g := range f.groups {
		switch {
		case g.busy:
		case now.Sub(g.asked) > restAfter:
			g.busy = true
			go f.rest(name, g)
		default:
			names = append(names, name)
		}
	}
	left := len(f.groups) > 0
	f.mu.Unlock()
	for _, name := range names {
		if s, err := f.find(name); err == nil && s.StreamStore != nil && f.where.mayBeDirty(s) {
			f.again(name)
		}
	}
	return left
}

// again syncs a stream once more, for nobody.
func (f *flusher) again(stream string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.groups[stream]; g != nil {
		f.join(stream, g, func(error) {})
	}
}

// served is sync for those who have only acks of the server: a stream that is not relaxed has synced what it acknowledged.
func (f *flusher) served(stream string, done func(error)) {
	f.mu.Lock()
	_, relaxed := f.groups[stream]
	f.mu.Unlock()
	if !relaxed {
		done(nil)
		return
	}
	f.sync(stream, done)
}

// sync calls done when everything is on disk that the stream had acknowledged before the call. A bucket is left to the server, which syncs each write to it: what removes a value that
// was replaced, with the block that it was in, may be on disk before what replaced it, and a power loss would cost both, although the first was answered long ago.
func (f *flusher) sync(stream string, done func(error)) {
	if _, bucket := streams.BucketOf(stream); bucket {
		done(nil)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[stream]
	if g == nil {
		g = &group{}
		f.groups[stream] = g
		select {
		case f.first <- struct{}{}:
		default:
		}
	}
	g.asked = time.Now()
	f.join(stream, g, done)
}

// join waits for the next sync. The lock is held.
func (f *flusher) join(stream string, g *group, done func(error)) {
	g.waiting = append(g.waiting, done)
	if !g.busy {
		g.busy = true
		go f.run(stream, g)
	}
}

// rest has the server sync each write again, and syncs what it has not. Who asks meanwhile waits for that, and relaxes the stream anew.
func (f *flusher) rest(stream string, g *group) {
	s, err := f.find(stream)
	if err == nil && s.StreamStore != nil {
		f.where.tighten(s)
		s.sync()
		if err = s.FlushAllPending(); err == nil {
			err = f.still(stream, s)
		}
	}
	f.mu.Lock()
	if len(g.waiting) > 0 || err != nil && !errors.Is(err, errNoStream) {
		f.mu.Unlock()
		f.run(stream, g)
		return
	}
	delete(f.groups, stream)
	f.mu.Unlock()
}

// run syncs a stream until nobody waits.
func (f *flusher) run(stream string, g *group) {
	var spare []func(error)
	var err error
	for {
		f.mu.Lock()
		waiting := g.waiting
		g.waiting = spare[:0]
		if len(waiting) == 0 {
			g.busy = false
			if errors.Is(err, errNoStream) {
				delete(f.groups, stream)
			}
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		err = f.flush(stream)
		for i, done := range waiting {
			done(err)
			waiting[i] = nil
		}
		spare = waiting
	}
}

// flush syncs a stream, and relaxes its store if that is new or was changed: an update of the stream's configuration makes it sync each write again.
func (f *flusher) flush(stream string) error {
	s, err := f.find(stream)
	if err != nil || s.StreamStore == nil {
		return err
	}
	f.where.relax(s)
	f.syncs.Add(1)
	if err = s.FlushAllPending(); err == nil && !f.where.relaxed(s) { // it was changed meanwhile, and may not have synced what came before that
		s.sync()
		err = s.FlushAllPending()
	}
	if err != nil {
		return fmt.Errorf("streams: cannot sync stream %s: %w", stream, err)
	}
	return f.still(stream, s)
}

// still tells of a store that was closed while it was synced: then nothing is known of it.
func (f *flusher) still(stream string, s store) error {
	if now, err := f.find(stream); err != nil {
		return err
	} else if f.where.ended(s) || now.pointer() != s.pointer() {
		return fmt.Errorf("streams: stream %s was closed while it was synced", stream)
	}
	return nil
}

// find returns a store without a StreamStore for a stream in memory, where nothing can be synced.
func (f *flusher) find(stream string) (store, error) {
	srv := f.running()
	if srv == nil {
		return store{}, errStopped
	}
	s, err := f.where.named(srv, stream)
	if err != nil {
		return s, fmt.Errorf("%w: %s: %w", errNoStream, stream, err)
	}
	return s, nil
}

// newFlusher returns what syncs the streams of a single server in groups; nil leaves it to the server, which syncs each write.
func (s *Server) newFlusher() *flusher {
	if s.o.Profile != Fsync || s.o.Cluster != nil {
		return nil
	}
	where, err := provenRelaxed()
	if err != nil {
		s.o.log().Warn("writes cannot be synced in groups: each is synced by itself, which takes several times as long", "error", err)
		return nil
	}
	return &flusher{where: where, running: s.running, first: make(chan struct{}, 1), groups: map[string]*group{}}
}

// Syncer returns what calls done when everything is on disk that a stream had acknowledged before the call, or with why that is not known. It is nil where an ack
// says it already, as far as the [Profile] promises it. done must not block.
func (s *Server) Syncer() func(stream string, done func(error)) {
	if s == nil || s.flusher == nil {
		return nil
	}
	return s.flusher.sync
}

// SyncServer is [Server.Syncer] for requests of other processes, which know acks of the server only. It leaves streams alone that are synced with each write.
func (s *Server) SyncServer() func(stream string, done func(error)) {
	if s == nil || s.flusher == nil {
		return nil
	}
	return s.flusher.served
}
