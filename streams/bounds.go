package streams

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Shares of a store that streams have which only tell: of them the oldest messages go when their share is used up, and
// nothing else waits for room. A bound that is set wins.
const (
	eventShare = 2  // EVENTS has half of the store
	deadShare  = 20 // DEAD_LETTERS a twentieth
)

// leastBound leaves room for a message of the largest size.
const leastBound = 2 << 20

// bind says how many bytes a stream may have that only tells: what is set, or its share of the store.
func (p Plan) bind(c *jetstream.StreamConfig, set, share int64) {
	if bytes := p.bound(set, share); bytes > 0 {
		c.MaxBytes = bytes
	}
	if set == 0 && p.Store > 0 {
		c.Metadata = p.shareOf(c.MaxBytes)
	}
}

func (p Plan) bound(set, share int64) int64 {
	if set == 0 && p.Store > 0 {
		return max(p.Store/share, leastBound)
	}
	return set
}

// Bounds are the bytes that EVENTS and DEAD_LETTERS may have: what is set, or their shares of the store; 0 is no bound.
func (p Plan) Bounds() (events, dead int64) {
	return p.bound(p.Events, eventShare), p.bound(p.DeadLetters, deadShare)
}

// Rebound brings the bounds of streams that exist to what [Ensure] would make them, and reports those that it leaves: for the store of a plan
// that has grown while the server runs. An error says that not all could be changed: try again.
func Rebound(ctx context.Context, js jetstream.JetStream, p Plan) ([]Difference, error) {
	var diffs []Difference
	for _, want := range p.Configs() {
		if !p.tells(want.Name) {
			continue
		}
		s, err := Led(ctx, js, want.Name)
		if err != nil {
			return nil, err
		}
		info := s.CachedInfo()
		have := info.Config
		if have.MaxBytes, err = p.rebind(ctx, js, &want, info); err != nil {
			return nil, fmt.Errorf("streams: cannot change the bound of stream %s: %w", want.Name, err)
		}
		diffs = append(diffs, compare(want, have)...)
	}
	return diffs, nil
}

// tells reports whether a stream is one that only tells.
func (p Plan) tells(stream string) bool {
	return stream == p.Names.Stream(EventStream) || stream == p.Names.Stream(DeadStream)
}

// rebind changes the bound of a stream that exists where it has to be changed, and returns what it is then.
func (p Plan) rebind(ctx context.Context, js jetstream.JetStream, want *jetstream.StreamConfig, info *jetstream.StreamInfo) (int64, error) {
	if !p.rebound(want, info) {
		return info.Config.MaxBytes, nil
	}
	changed := info.Config
	changed.MaxBytes = want.MaxBytes
	changed.Metadata = maps.Clone(info.Config.Metadata)
	if delete(changed.Metadata, boundIs); want.Metadata[boundIs] != "" {
		if changed.Metadata == nil {
			changed.Metadata = map[string]string{}
		}
		changed.Metadata[boundIs] = want.Metadata[boundIs]
	}
	if err := update(ctx, js, changed); err != nil {
		return info.Config.MaxBytes, err
	}
	if uint64(changed.MaxBytes) < info.State.Bytes { // it is a bound
		cmp.Or(p.Log, slog.New(slog.DiscardHandler)).Warn("the oldest messages of a stream go: it has more than it may have now", "stream", want.Name, "bytes", info.State.Bytes, "may have", changed.MaxBytes)
	}
	return changed.MaxBytes, nil
}

// boundIs is what the metadata of a stream says of a bound that is a share of the store, so that it follows the store: how large it was made and,
// where that store was set, whose it is. A bound of another size was changed by hand, and one without a mark was set.
const boundIs = "instar.bound"

func (p Plan) shareOf(bytes int64) map[string]string {
	mark := "share:" + strconv.FormatInt(bytes, 10)
	if p.StoreSet && p.Node != "" {
		mark += ":" + p.Node
	}
	return map[string]string{boundIs: mark}
}

// rebound reports whether the bound of a stream that exists is to be changed: to one that is set, or to its share, where it is none that was set.
//
// How much room was found on a disk depends on whoever else fills it, and in a cluster on the member that looks. So a share of that only grows, and by no
// small changes: it takes nothing away, and a stream that has more than its share already is left without a bound. A store that is set depends on
// nobody, so a share of it follows in both directions. Where members have set different ones the smallest counts, because each that has a replica holds all of
// the stream: only the member whose share it is lets it grow again, as long as it is one of them.
func (p Plan) rebound(want *jetstream.StreamConfig, info *jetstream.StreamInfo) bool {
	if !p.tells(want.Name) {
		return false
	}
	have := info.Config.MaxBytes
	share, of, _ := strings.Cut(strings.TrimPrefix(info.Config.Metadata[boundIs], "share:"), ":")
	switch {
	case want.Metadata[boundIs] == "" && want.MaxBytes > 0:
		return want.MaxBytes != have || share != ""
	case want.MaxBytes < 0: // whoever has bounded it may have
		want.MaxBytes = have
	case p.StoreSet && p.Node != "" && !replicaOn(info, p.Node): // its store holds none of it
		want.MaxBytes = have
	case have <= 0:
		return p.StoreSet || uint64(want.MaxBytes) > info.State.Bytes // it is a share
	case share != strconv.FormatInt(have, 10):
		want.MaxBytes = have
	case p.StoreSet && want.MaxBytes < have:
	case !p.StoreSet && want.MaxBytes-have < have/5:
		want.MaxBytes = have
	case of != "" && of != p.Node && replicaOn(info, of):
		return false
	}
	return want.MaxBytes != have
}

// replicaOn reports whether a member of a cluster has a replica of the stream.
func replicaOn(info *jetstream.StreamInfo, member string) bool {
	c := info.Cluster
	return c != nil && (c.Leader == member || slices.ContainsFunc(c.Replicas, func(r *jetstream.PeerInfo) bool { return r.Name == member }))
}
