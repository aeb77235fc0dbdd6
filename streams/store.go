package streams

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// Shares of a store that streams have which only tell: of them the oldest messages go when their share is used up, and
// nothing else waits for room. A bound that is set wins.
const (
	eventShare = 2  // EVENTS has half of the store
	deadShare  = 20 // DEAD_LETTERS a twentieth
)

// Room is what a store has, in bytes.
type Room struct {
	Used  int64 // by all streams
	Limit int64 // that they are to have; 0 says that there is none
}

// Reserve is what of a store, or of a disk, is kept for work that is under way: commands are refused before, so that values,
// events and results can still be stored. It is a fiftieth, and at most 64 MiB.
func Reserve(size int64) int64 { return min(size/50, 64<<20) }

// Full reports whether only the reserve is left.
func (r Room) Full() bool { return r.Limit > 0 && r.Used >= r.Limit-Reserve(r.Limit) }

// Store is what the server's streams use, and may use. Of a member that is its own store, not those of the others.
func (s *Server) Store() (Room, error) {
	_, info, err := s.jsz(server.JSzOptions{})
	if err != nil {
		return Room{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Room{Used: int64(min(info.Store, 1<<62)), Limit: s.limit}, nil //nolint:gosec // bounded
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
	return Room{Used: int64(min(tier.Store, 1<<62)), Limit: max(tier.Limits.MaxStore, 0)}, nil //nolint:gosec // bounded
}

// storeLimit is what the server may store when nothing is said: what it has, and what is left of the disk but for the
// reserve. The server's own default is three quarters of what is left, so that it would have less with each start.
func storeLimit(dir string) (int64, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	free, size, err := DiskSpace(dir)
	if err != nil {
		return 0, err
	}
	var used int64
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && info.Mode().IsRegular() {
			used += info.Size()
		}
		return err
	})
	return max(used+free-Reserve(size), 1), err // 0 is the server's own default
}
