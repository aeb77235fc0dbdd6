package consumers

import (
	"context"

	"github.com/bcc94042/instar/streams"
)

// Whoever creates an entity would wait for its bucket to say that there is none, which costs more than all else that the
// owner does for it. The index of this process knows nearly always, and where it is late nothing is lost: the commit asks
// that the key was never written, and what comes out without a commit is not said before the bucket was asked. After a
// wrong guess, which costs a start of the partition, none is made for an idle round: the index has caught up by then.

// guess takes an entity for one that is not there, if the command creates it and its index lacks it.
func (p *partition) guess(s *slot, it *item) bool {
	ix := p.e.Indexes[s.m.Name]
	input, _ := s.m.Input(it.addr.Last)
	if ix == nil || !input.Birth || it.delivered > 1 || p.doubtful || !ix.Lacks(s.key) {
		return false
	}
	namespace, parent, id, err := streams.SplitKey(s.key)
	if err != nil {
		return false
	}
	s.entity, s.guessed = s.m.New(namespace, parent, id), true
	return true
}

// unsure reports that the entity was guessed not to be there, and that no commit will find out yet.
func (s *slot) unsure() bool { return s.guessed && !s.dirty }

// ascertain looks the entity of item n up, and handles its command anew.
func (p *partition) ascertain(ctx context.Context, items []*item, d delivery, n int) error {
	it := items[n]
	if it.end != nil {
		it.end(nil)
	}
	s := it.slot
	*s = slot{m: s.m, key: s.key, round: s.round}
	if err := p.fill(ctx, s); err != nil {
		return err
	}
	items[n] = p.read(d)
	items[n].slot = s
	p.handle(items[n])
	return nil
}
