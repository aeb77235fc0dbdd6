package embedded

// Syncing all streams of a single server together, under the profile Interval. Start (server.go) starts the barrier, which runs a round at each tick: of the stores that were
// written to since the last round (stores.go), those of values and events are synced first and that of the commands afterwards, while acks are held back (Server.Acking).
// Shutdown ends it with a last round.

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

// slowBarrier is when a round is logged as slow: a power loss also costs what was written meanwhile.
const slowBarrier = time.Second

// barrier syncs all streams of a single server at one point, so that a power loss costs all of them the same. By timers of
// their own they would lose tails of different lengths, and what is stored would contradict itself: see ADR 15.
//
// Values and what entities have emitted are synced side by side, so that both are on disk up to the same moment: a value no longer has what was emitted when it is replaced, and an event
// without the value that it belongs to reports something that has not happened. The commands follow. An ack means that a value has taken its command, and none is sent from before the
// values are synced until the commands are: so no ack is on disk without the value, and a command that is on disk without its ack is delivered again.
type barrier struct {
	where    *stores
	dir      string // of the streams
	commands string // name of the stream
	every    time.Duration
	log      *slog.Logger
	acks     sync.RWMutex // held for reading by whoever acks
	rounds

	mu      sync.Mutex               // one round at a time
	synced  map[unsafe.Pointer]point // by store, as it was before it was last synced
	longest time.Duration            // of the rounds
	warned  time.Time
}

// point is the state of a store. It is another one after anything was stored or removed.
type point struct{ first, last, messages uint64 }

// stop syncs once more.
func (b *barrier) stop(srv *server.Server) {
	b.end()
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
		b.log.Warn("the disk syncs slowly: a power loss may lose that much more", "took", took.Round(time.Millisecond))
	}
}

// syncNew syncs the files and directories of new streams. The server syncs only their messages: until the kernel has written the configuration, after half a minute, a power loss
// would cost the stream.
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
			b.log.Warn("cannot sync a new stream: a power loss within half a minute may lose it", "error", err)
		}
	}
}

// sync syncs stores side by side: a file system that has to commit for each of them does so once for all.
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
