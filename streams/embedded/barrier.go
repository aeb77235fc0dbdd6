package embedded

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
)

// backstop is how often the server itself syncs a stream that no barrier has synced.
const backstop = time.Second

// slowBarrier is worth a word: a power loss costs what was written meanwhile, too.
const slowBarrier = time.Second

// barrier syncs all streams of a single server at one point, so that a power loss costs all of them the same. By timers of
// their own they would lose tails of different lengths, and what is stored would contradict itself: see ADR 15.
//
// Values and what entities have emitted are synced beside each other, so that both are on disk up to the same moment: a value
// forgets what was emitted when it is replaced, and an event without the value that it belongs to is of a future that never
// comes. The commands follow. Their acks say that a value knows them, and none is sent from before the values are synced until
// the commands are: so none is on disk without the value, and what is on disk without its ack comes again.
type barrier struct {
	where    *stores
	dir      string // of the streams
	commands string // name of the stream
	every    time.Duration
	log      *slog.Logger
	acks     sync.RWMutex // read by who acks
	loop     sync.WaitGroup
	quit     chan struct{}
	ended    sync.Once

	mu      sync.Mutex               // one round at a time
	synced  map[unsafe.Pointer]point // by store, as it was before it was last synced
	longest time.Duration            // of the rounds
	warned  time.Time
}

// point tells that a store was written to: nothing is stored or removed without another one.
type point struct{ first, last, messages uint64 }

// start syncs again and again until stop.
func (b *barrier) start(running func() *server.Server) {
	b.loop.Go(func() {
		tick := time.NewTicker(b.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.round(running())
			case <-b.quit:
				return
			}
		}
	})
}

// stop syncs once more.
func (b *barrier) stop(srv *server.Server) {
	b.ended.Do(func() { close(b.quit) })
	b.loop.Wait()
	b.round(srv)
}

// round syncs what was written since the round before. There is no server while it is restarted.
func (b *barrier) round(srv *server.Server) {
	if srv == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	began := time.Now()
	var commands, others []store
	var fresh []string
	for _, s := range b.where.of(srv) {
		if s.name == b.commands {
			commands = append(commands, s)
		} else {
			others = append(others, s)
		}
		if _, known := b.synced[s.pointer()]; !known {
			fresh = append(fresh, s.name)
		}
	}
	if len(fresh) > 0 {
		b.syncNew(fresh)
	}
	synced := make(map[unsafe.Pointer]point, len(b.synced)) // without stores that are gone
	b.acks.Lock()
	b.sync(others, synced)
	b.sync(commands, synced)
	b.acks.Unlock()
	b.synced = synced
	took := time.Since(began)
	b.longest = max(b.longest, took)
	if took > slowBarrier && time.Since(b.warned) > time.Minute {
		b.warned = time.Now()
		b.log.Warn("the disk is slow to sync: a power loss may cost as much more", "took", took.Round(time.Millisecond))
	}
}

// syncNew syncs what says that there are streams. The server syncs what is in one only: its configuration would be lost for as
// long as the kernel keeps it, half a minute, and the stream with it.
func (b *barrier) syncNew(streams []string) {
	paths := []string{b.dir}
	for range 4 { // up to the data directory
		paths = append(paths, filepath.Dir(paths[len(paths)-1]))
	}
	for _, name := range streams {
		dir := filepath.Join(b.dir, name)
		paths = append(paths, filepath.Join(dir, server.JetStreamMetaFile), filepath.Join(dir, server.JetStreamMetaFileSum), filepath.Join(dir, "msgs"), dir)
	}
	for _, path := range slices.Backward(paths) {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was deleted meanwhile
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			b.log.Warn("cannot sync a new stream: a power loss within half a minute may cost it", "error", err)
		}
	}
}

// sync syncs stores beside each other: a file system that has to commit for all of them does so once.
func (b *barrier) sync(list []store, synced map[unsafe.Pointer]point) {
	var all sync.WaitGroup
	for _, s := range list {
		var state server.StreamState
		s.FastState(&state)
		now := point{state.FirstSeq, state.LastSeq, state.Msgs}
		if before, ok := b.synced[s.pointer()]; !ok || before != now {
			all.Go(s.sync)
		}
		synced[s.pointer()] = now
	}
	all.Wait()
}

func (b *barrier) longestRound() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.longest
}
