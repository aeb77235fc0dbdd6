package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// Room is what a store has, in bytes.
type Room struct {
	Used  int64 // by all streams
	Limit int64 // at which commands are refused; below 0 there is none
	Disk  bool  // the limit is what the disk has, not one that is set
}

// reserve is what of a store, or of a disk, is kept for work that is under way: commands are refused before, so that values,
// events and results can still be stored. It is a fiftieth, and at most 64 MiB.
func reserve(size int64) int64 { return min(size/50, 64<<20) }

// Full reports whether only the reserve is left.
func (r Room) Full() bool { return r.Limit >= 0 && r.Used >= r.Limit }

// Store is what the server's streams use, and may use: a limit that is set, or what they have and what is left of the disk, whichever is less,
// but for a reserve. Of a member that is its own store, not those of the others. The disk is asked anew each time: others fill it, and make room on it.
// The error is [ErrStuck] for a server that no restart brings back, as soon as its disk has room, and [ErrSlow] for one that does not answer for now.
func (s *Server) Store() (Room, error) {
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
		return Room{}, fmt.Errorf("streams: cannot tell how much room there is: %w", full)
	case s.stuck && free < reserve(size):
		return Room{Used: s.used, Disk: true}, nil
	case err != nil:
		return Room{}, err
	}
	r := Room{Used: int64(min(info.Store, 1<<62)), Limit: s.o.MaxStore - reserve(s.o.MaxStore)} // bounded
	s.used = r.Used
	if disk := max(r.Used+free-reserve(size), 0); s.o.MaxStore == 0 || disk < r.Limit {
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
		return err
	case <-time.After(cmp.Or(s.o.patience, patience)):
	}
	if waitsForItself(goroutines()) {
		return ErrStuck
	}
	return ErrSlow
}

// waitsForItself finds the one who waits in what all goroutines do: nobody else takes that lock there.
func waitsForItself(stacks string) bool {
	return slices.ContainsFunc(strings.Split(stacks, "\n\n"), func(stack string) bool {
		return strings.Contains(stack, "sync.(*RWMutex).Lock") && strings.Contains(stack, "server.(*fileStore).rebuildState")
	})
}

func goroutines() string {
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1) // a builder takes everything
	return stacks.String()
}

// unlimited is what the server itself is told: at its own limit a member takes part in nothing any more, not even in what would make room, and
// bounds of streams count as used. So whoever lets commands in keeps the limit, see [Room.Full].
const unlimited = 1 << 60

// AccountRoom is what an account of a server that is attached uses, and may use: of all its streams or, where it has tiers, of those with
// as many replicas. Its limit counts each replica, that of a tier each message.
func AccountRoom(ctx context.Context, js jetstream.JetStream, replicas int) (Room, error) {
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return Room{}, fmt.Errorf("streams: cannot ask what the account may store: %w", err)
	}
	tier := info.Tier
	if t, ok := info.Tiers["R"+strconv.Itoa(replicas)]; ok {
		tier = t
	}
	r := Room{Used: int64(min(tier.Store, 1<<62)), Limit: -1} // bounded
	if most := tier.Limits.MaxStore; most > 0 {
		r.Limit = most - reserve(most)
	}
	return r, nil
}
