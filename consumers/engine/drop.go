package engine

import (
	"context"

	"github.com/bcc94042/instar/consumers/ended"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/publish"
)

// drop decides about the command that drops an ended entity. It was loaded anew for it.
func (p *partition) drop(it *item) {
	s := it.cached
	s.mark(it)
	it.answer.Outcome = machines.Ignored
	it.fillAnswer(s)
	if it.awaited || s.dropped || s.dirty || len(s.transient) > 0 || !ended.Due(s.m, &s.entity, it.time, p.e.DropAfter(s.m.Name)) {
		return
	}
	s.entity = ended.Remains(s.m, s.entity)
	s.markAnswersStored() // they were, a longer time ago than any is kept
	s.taken = append(s.taken, it.seq)
	s.dropped, s.dirty = true, true
}

// writeOf is the write of an entity's value, or of what remains of it.
func (p *partition) writeOf(s *cachedEntity, value []byte) publish.Write {
	bucket := p.e.Names.Bucket(s.m.Plural)
	if s.dropped {
		return kv.DropAt(bucket, s.key, value, s.revision, ended.Life)
	}
	return kv.WriteAt(bucket, s.key, value, s.revision)
}

// finishDrops removes the views of those whose values a batch has dropped, or the one before it that was not acked.
func (p *partition) finishDrops(ctx context.Context, items []*item) error {
	for _, it := range items {
		if it.addr.Last == machines.CommandDrop && it.cached != nil && it.cached.dropped {
			if err := ended.Views(ctx, &p.e.Deps, it.cached.m, it.cached.key, it.cached.entity.Version); err != nil {
				return err
			}
		}
	}
	return nil
}
