package shard

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// presence is what a relay says of itself to the others of its source, under a key that ends by itself.
type presence struct {
	Node   string `json:"node"`
	Shards int    `json:"shards"` // that it holds
}

// shareEvery is how often a relay looks who the others are.
const shareEvery = 2 * time.Second

// Share says that this relay is there and holds so many of count shards, and returns how many it should: as many as the
// others, give or take one. Without an answer from NATS it returns what it said last.
func (l *NATSLeases) Share(ctx context.Context, count, held int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.looked) < min(shareEvery, l.life()/4) && held == l.said && count == l.count {
		return l.share
	}
	if count != l.count {
		l.count, l.share = count, held
	}
	ctx, cancel := context.WithTimeout(ctx, l.life()/3)
	defer cancel()
	others, err := l.meet(ctx, held)
	if err != nil {
		if ctx.Err() == nil {
			l.log().Warn("cannot ask who else relays", "source", l.Source, "error", err)
		}
		return l.share
	}
	l.looked, l.said, l.share = time.Now(), held, share(count, others, l.Node)
	return l.share
}

// Leave says that this relay is gone.
func (l *NATSLeases) Leave(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looked.IsZero() {
		return
	}
	l.looked = time.Time{}
	_ = l.put(ctx, l.key(l.presence()), nil) // without an answer it ends by itself
}

func (l *NATSLeases) presence() string { return "nodes." + hex.EncodeToString([]byte(l.Node)) }

// meet writes this relay's presence and reads those of all.
func (l *NATSLeases) meet(ctx context.Context, held int) (map[string]int, error) {
	body, err := json.Marshal(presence{l.Node, held})
	if err != nil {
		return nil, err
	}
	if err := l.put(ctx, l.key(l.presence()), body); err != nil {
		return nil, err
	}
	bucket, err := l.JS.Stream(ctx, l.bucket())
	if err != nil {
		return nil, err
	}
	info, err := streams.LeadersInfo(ctx, bucket, jetstream.WithSubjectFilter(l.key("nodes.*")))
	if err != nil {
		return nil, err
	}
	all := map[string]int{l.Node: held}
	for subject := range info.State.Subjects {
		m, err := bucket.GetLastMsgForSubject(ctx, subject)
		if err != nil || len(m.Data) == 0 { // it has ended
			continue
		}
		var p presence
		if err := json.Unmarshal(m.Data, &p); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", subject, err)
		}
		if p.Node != l.Node {
			all[p.Node] = p.Shards
		}
	}
	return all, nil
}

// share is how many of count shards a node should hold when each has so many: the same as the others, and the first of
// those who have more keep what cannot be shared. So all come to the same answer, and none moves without need.
func share(count int, have map[string]int, node string) int {
	least, more := count/len(have), count%len(have)
	var over, under []string
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if have[name] > least {
			over = append(over, name)
		} else {
			under = append(under, name)
		}
	}
	if slices.Index(append(over, under...), node) < more {
		return least + 1
	}
	return least
}
