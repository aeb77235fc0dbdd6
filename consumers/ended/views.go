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

// views removes what the views of a machine have of entities whose values are dropped. Once for each partition that this process gets it goes by all that is stored, so that it does not matter
// when they were dropped, who did not get further then, or what has brought a value of a view back; after that by what was due since. A failure is left to the next pass.
func (p *Passes) views(ctx context.Context, m *machines.Machine, ix *index.Index) {
	r, gained := p.of(m), false
	for n := range r.listed {
		owns := p.Owns(n)
		gained = gained || owns && !r.listed[n]
		r.listed[n] = owns
	}
	var dropped []string
	for key := range r.due {
		if !ix.Holds(key) { // else the next pass looks again
			dropped = append(dropped, key)
			delete(r.due, key)
		}
	}
	for _, v := range m.Views {
		tries := consumers.MaxTries
		_, err := p.clear(ctx, m, p.Names.Bucket(m.BucketOf(v)), dropped, len(dropped), &tries)
		if err == nil && gained && ix.Gone() > 0 { // where there are no markers, there is nothing to look for
			err = p.clearView(ctx, m, v, ix)
		}
		if err != nil {
			r.listed = [streams.Partitions]bool{}
			if ctx.Err() == nil {
				p.Log.Warn("what a view has of dropped entities is kept until the next pass", "view", consumers.ViewName(m, v), "error", err)
			}
		}
	}
}

func (p *Passes) of(m *machines.Machine) *recent {
	if p.recent == nil {
		p.recent = map[string]*recent{}
	}
	if p.recent[m.Name] == nil {
		p.recent[m.Name] = &recent{due: map[string]bool{}}
	}
	return p.recent[m.Name]
}

// clearView does so for one view by what its bucket has. It asks for the keys, 100,000 at once; each time the server looks through all of them, and takes no writes of the bucket meanwhile. It gives
// up when too many cannot be removed.
func (p *Passes) clearView(ctx context.Context, m *machines.Machine, v machines.View, ix *index.Index) (failed error) {
	bucket, tries := p.Names.Bucket(m.BucketOf(v)), consumers.MaxTries
	for offset := 0; ; {
		keys, total, err := streams.Subjects(ctx, p.NC, streams.BucketStream(bucket), streams.BucketSubject(bucket, streams.AnyKey(m.Parent != "")), offset)
		if err != nil {
			p.Meter.DropFailed(m.Name)
			return fmt.Errorf("cannot list bucket %s: %w", bucket, err)
		}
		var unknown []string
		for subject := range keys {
			if _, key, ok := streams.BucketKey(subject); ok && p.Owns(streams.Partition(m.Name, key)) && !ix.Holds(key) {
				unknown = append(unknown, key)
			}
		}
		gone, err := p.clear(ctx, m, bucket, unknown, total, &tries)
		if err != nil {
			failed = err
		}
		if offset += len(keys) - gone; tries == 0 || ctx.Err() != nil || len(keys) == 0 || offset >= total-gone { // those behind have moved up
			return failed
		}
	}
}

// clear removes those of some keys whose entities are markers, and counts them, at the pace of a pass over so many. It gives up when there are no tries left.
func (p *Passes) clear(ctx context.Context, m *machines.Machine, bucket string, keys []string, of int, tries *int) (gone int, failed error) {
	tick := time.NewTicker(consumers.Spread(of, within, fastest))
	defer tick.Stop()
	for _, key := range keys {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return gone, ctx.Err()
		}
		removed, err := p.remove(ctx, m, bucket, key)
		if err != nil {
			p.Meter.DropFailed(m.Name)
			failed = err
			if *tries--; *tries == 0 {
				return gone, failed
			}
		}
		if removed {
			gone++
		}
	}
	return gone, failed
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
