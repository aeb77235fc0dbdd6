package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/streams"
)

// Store is what the server's streams use, and may use: a limit that is set, or what they have and what is left of the disk, whichever is less,
// but for a reserve. Of a member that is its own store, not those of the others. The disk is asked anew each time: others fill it, and make room on it.
// The error is [ErrStuck] for a server that no restart brings back, as soon as its disk has room, and [ErrSlow] for one that does not answer for now.
func (s *Server) Store() (streams.Room, error) {
	s.look.Lock()
	defer s.look.Unlock()
	var info *server.JSInfo
	err := ErrStuck
	if !s.stuck {
		err = s.within(func() (err error) { _, info, err = s.jsz(server.JSzOptions{}); return err })
	}
	s.stuck = errors.Is(err, ErrStuck)
	free, size, full := s.o.space(filepath.Join(s.o.Dir, "nats"))
	switch {
	case full != nil:
		return streams.Room{}, fmt.Errorf("streams: cannot tell how much room there is: %w", full)
	case s.stuck && free < streams.Reserve(size):
		return streams.Room{Used: s.used, Disk: true}, nil
	case err != nil:
		return streams.Room{}, err
	}
	r := streams.Room{Used: int64(min(info.Store, 1<<62)), Limit: s.o.MaxStore - streams.Reserve(s.o.MaxStore)} // bounded
	s.used = r.Used
	if disk := max(r.Used+free-streams.Reserve(size), 0); s.o.MaxStore == 0 || disk < r.Limit {
		r.Limit, r.Disk = disk, true
	}
	return r, nil
}

// ErrStuck says that the embedded server waits for itself: a write failed, as on a full disk, while a stream was purged or a schedule fired, and
// nats-server 2.15.2 then takes a lock of that stream's store that it holds (fileStore.PurgeEx, flushPendingMsgs, rebuildState). It cannot be
// restarted either, as its end waits for that lock: only the process can.
var ErrStuck = errors.New("streams: the embedded NATS server waits for itself after a failed write; only another process can open its store again")

// ErrSlow says that the embedded server does not tell how it stands: a purge of millions of messages is under way, or its disk stands still.
var ErrSlow = errors.New("streams: the embedded NATS server does not say how it stands: it purges very much, or its disk stands still")

// patience is how long the embedded server may take for what takes microseconds, before it is looked at more closely.
const patience = 10 * time.Second

// within asks the server something that takes locks of its streams. The question stays behind where there is no answer.
func (s *Server) within(ask func() error) error {
	answer := make(chan error, 1)
	go func() { answer <- ask() }()
	select {
	case err := <-answer:
		if err != nil && waitsForItself(s.o.stacks()) { // JetStream may be off by now
			return ErrStuck
		}
		return err
	case <-time.After(cmp.Or(s.o.patience, patience)):
	}
	if waitsForItself(s.o.stacks()) {
		return ErrStuck
	}
	return ErrSlow
}

// waitsForItself finds the goroutine that waits for the lock of a file store which it holds itself, by its stack. Others wait in rebuildState for somebody else.
func waitsForItself(stacks string) bool {
	return slices.ContainsFunc(strings.Split(stacks, "\n\n"), func(stack string) bool {
		_, callers, found := strings.Cut(stack, "server.(*fileStore).rebuildState")
		return found && strings.Contains(stack, "sync.(*RWMutex).Lock") && slices.ContainsFunc(holders, func(f string) bool { return strings.Contains(callers, f) })
	})
}

// holders call flushPendingMsgs, which calls rebuildState, with the lock of their store.
var holders = []string{"server.(*fileStore).PurgeEx", "server.(*fileStore).purgeLocked", "server.(*fileStore).compactLocked"}

func goroutines() string {
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1) // a builder takes everything
	return stacks.String()
}

// unlimited is what the server itself is told: at its own limit a member takes part in nothing any more, not even in what would make room, and
// bounds of streams count as used. So whoever lets commands in keeps the limit, see [streams.Room.Full].
const unlimited = 1 << 60
