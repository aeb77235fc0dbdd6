package streams

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

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
func (s *Server) Store() (Room, error) {
	_, info, err := s.jsz(server.JSzOptions{})
	if err != nil {
		return Room{}, err
	}
	r := Room{Used: int64(min(info.Store, 1<<62)), Limit: s.o.MaxStore - reserve(s.o.MaxStore)} // bounded
	free, size, err := s.o.space(filepath.Join(s.o.Dir, "nats"))
	if err != nil {
		return Room{}, fmt.Errorf("streams: cannot tell how much room there is: %w", err)
	}
	if disk := max(r.Used+free-reserve(size), 0); s.o.MaxStore == 0 || disk < r.Limit {
		r.Limit, r.Disk = disk, true
	}
	return r, nil
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
