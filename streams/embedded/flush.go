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

// flushEvery is how often streams are looked at for what was written by others than those that call [Server.Sync], whose acks come before it is on disk.
const flushEvery = 5 * time.Millisecond

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

	mu     sync.Mutex
	groups map[string]*group // by stream
}

// group is who waits for the next sync of a stream.
type group struct {
	waiting []func(error)
	busy    bool // a goroutine syncs, and takes what waits when it has
}

// sweep syncs what others have written to relaxed streams. It waits for no lock of a store: one that is held is asked like one that is dirty.
func (f *flusher) sweep() {
	f.mu.Lock()
	var names []string
	for name, g := range f.groups {
		if !g.busy {
			names = append(names, name)
		}
	}
	f.mu.Unlock()
	for _, name := range names {
		if s, err := f.find(name); err == nil && s.StreamStore != nil && f.where.mayBeDirty(s) {
			f.sync(name, func(error) {})
		}
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
	}
	g.waiting = append(g.waiting, done)
	if !g.busy {
		g.busy = true
		go f.run(stream, g)
	}
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
	return &flusher{where: where, running: s.running, groups: map[string]*group{}}
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
