package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
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
// The error is [ErrStuck] when the server gives no answer although its disk has room.
func (s *Server) Store() (Room, error) {
	free, size, err := s.o.space(filepath.Join(s.o.Dir, "nats"))
	if err != nil {
		return Room{}, fmt.Errorf("streams: cannot tell how much room there is: %w", err)
	}
	s.look.Lock()
	defer s.look.Unlock()
	if s.stuck && free < reserve(size) {
		return s.full(), nil
	}
	info, err := s.jszWithin(cmp.Or(s.o.patience, patience))
	switch s.stuck = errors.Is(err, ErrStuck); {
	case s.stuck && free < reserve(size):
		return s.full(), nil
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

// ErrStuck says that the embedded server does not tell how it stands, which takes it no look at a disk. So it is when a disk was full
// while a stream was purged or a schedule fired: nats-server 2.15.2 then waits for a lock of that stream's store that it holds itself
// (fileStore.PurgeEx, flushPendingMsgs, rebuildState). It cannot be restarted either, as its end waits for that lock: only the process can.
var ErrStuck = errors.New("streams: the embedded NATS server gives no answer about itself; only another process can open its store again")

// patience is how long the embedded server may take to say how it stands: many times what a busy machine makes of microseconds.
const patience = 10 * time.Second

// full is a store without room whose server does not say what it has: that is what it said the last time.
func (s *Server) full() Room { return Room{Used: s.used, Limit: 0, Disk: true} }

// jszWithin asks the server how it stands. The question stays behind when it is stuck.
func (s *Server) jszWithin(patience time.Duration) (info *server.JSInfo, err error) {
	type answer struct {
		info *server.JSInfo
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		_, info, err := s.jsz(server.JSzOptions{})
		answers <- answer{info, err}
	}()
	select {
	case a := <-answers:
		return a.info, a.err
	case <-time.After(patience):
		return nil, ErrStuck
	}
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
