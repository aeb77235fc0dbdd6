package ended

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// views removes what the views of a machine have of entities whose values are dropped. It goes by what is stored, so that it does not matter when they were dropped, who did
// not get further then, or what has brought a value of a view back. A failure is left to the next pass.
func (p *Passes) views(ctx context.Context, m *machines.Machine, ix *index.Index) {
	tick := time.NewTicker(time.Second / pace)
	defer tick.Stop()
	for _, v := range m.Views {
		if err := p.clearView(ctx, m, v, ix, tick.C); err != nil && ctx.Err() == nil {
			p.Log.Warn("what a view has of dropped entities is kept until the next pass", "view", consumers.ViewName(m, v), "error", err)
		}
	}
}

// clearView does so for one view. It asks for the keys of its bucket, 100,000 at once, and reads what becomes of those that the index knows no value of. It gives up when too many
// cannot be removed.
func (p *Passes) clearView(ctx context.Context, m *machines.Machine, v machines.View, ix *index.Index, tick <-chan time.Time) (failed error) {
	bucket := p.Names.Bucket(m.BucketOf(v))
	failures := 0
	for offset := 0; ; {
		keys, total, err := streams.Subjects(ctx, p.NC, streams.BucketStream(bucket), streams.BucketSubject(bucket, streams.AnyKey(m.Parent != "")), offset)
		if err != nil {
			p.Meter.DropFailed(m.Name)
			return fmt.Errorf("cannot list bucket %s: %w", bucket, err)
		}
		for subject := range keys {
			_, key, ok := streams.BucketKey(subject)
			if !ok || !p.Owns(streams.Partition(m.Name, key)) || ix.Holds(key) {
				continue
			}
			select {
			case <-tick:
			case <-ctx.Done():
				return ctx.Err()
			}
			gone, err := p.remove(ctx, m, bucket, key)
			if err != nil {
				p.Meter.DropFailed(m.Name)
				failed = err
				if failures++; failures == consumers.MaxTries {
					return failed
				}
			}
			if gone {
				offset-- // those behind it have moved up
			}
		}
		if offset += len(keys); len(keys) == 0 || offset >= total {
			return failed
		}
	}
}

// remove removes what a view has of an entity up to the version at which that was dropped, if it was. The name may have a new life meanwhile, whose events have higher ones.
func (p *Passes) remove(ctx context.Context, m *machines.Machine, bucket, key string) (gone bool, err error) {
	left, err := kv.Read(ctx, p.NC, p.Names.Bucket(m.Plural), key)
	if err != nil || !kv.Dropped(left) {
		return false, err
	}
	e, err := m.DecodeAt(key, left.Data)
	if err != nil {
		return false, fmt.Errorf("cannot read what is left of %s %s: %w", m.Name, key, err)
	}
	stored, err := kv.Read(ctx, p.NC, bucket, key)
	if err != nil {
		return false, fmt.Errorf("cannot read %s of bucket %s: %w", key, bucket, err)
	}
	var folded machines.Folded
	if stored == nil || json.Unmarshal(stored.Data, &folded) == nil && folded.Version > e.Version {
		return false, nil
	}
	if err := streams.Purge(ctx, p.NC, streams.BucketStream(bucket), streams.BucketSubject(bucket, key), stored.Sequence); err != nil {
		return false, fmt.Errorf("cannot remove %s from bucket %s: %w", key, bucket, err)
	}
	return true, nil
}
