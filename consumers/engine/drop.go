package engine

import (
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
	whole := s.entity
	s.whole, s.entity = &whole, ended.Remains(s.m, whole, s.revision)
	s.markAnswersStored() // they were, a longer time ago than any is kept
	s.taken = append(s.taken, it.seq)
	s.dropped, s.dirty = true, true
}

// undrop takes a drop back that the bucket refuses, such as one that takes no messages with a life: nothing was changed, as the answer says, and a later pass tries again. The
// partition is not to wait for it.
func (p *partition) undrop(s *cachedEntity, err error) {
	p.e.Meter.DropFailed(s.m.Name)
	p.e.Log.Warn("the value of an ended entity is kept: its bucket refuses the marker", "machine", s.m.Name, "key", s.key, "error", err)
	s.entity, s.whole, s.dropped, s.dirty, s.taken = *s.whole, nil, false, false, nil
}

// writeOf is the write of an entity's value, or of what remains of it.
func (p *partition) writeOf(s *cachedEntity, value []byte) publish.Write {
	bucket := p.e.Names.Bucket(s.m.Plural)
	if s.dropped {
		return kv.DropAt(bucket, s.key, value, s.revision, ended.Life)
	}
	return kv.WriteAt(bucket, s.key, value, s.revision)
}
