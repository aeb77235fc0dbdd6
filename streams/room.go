package streams

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// Room is what a store has, in bytes.
type Room struct {
	Used  int64 // by all streams
	Limit int64 // at which commands are refused; below 0 there is none
	Disk  bool  // the limit is what the disk has, not one that is set
}

// Reserve is what of a store, or of a disk, is kept for work that is under way: commands are refused before, so that values,
// events and results can still be stored. It is a fiftieth, and at most 64 MiB.
func Reserve(size int64) int64 { return min(size/50, 64<<20) }

// Full reports whether only the reserve is left.
func (r Room) Full() bool { return r.Limit >= 0 && r.Used >= r.Limit }

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
		r.Limit = most - Reserve(most)
	}
	return r, nil
}
