package engine

import (
	"context"
	"errors"
	"time"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Speculative create: whoever creates an entity would wait for its bucket to say that there is none. The index of this process knows nearly
// always, and where it is late nothing is lost: the write expects that the key was never written, and what comes out without
// a write is verified before it is answered. A wrong speculation costs a restart of the partition.

// coolDown is how long nothing is created speculatively after any partition of this process has failed: the index may be late for the
// same reason, and what was done and not acked comes again.
const coolDown = 30 * time.Second

var errSpeculation = errors.New("speculative create of an entity that exists")

// speculate takes an entity for one that does not exist, if the command creates it and its index lacks it.
func (p *partition) speculate(s *cachedEntity, it *item) bool {
	ix := p.e.Indexes.Get(s.m.Name)
	if input, _ := s.m.Input(it.addr.Last); ix == nil || !input.Birth || it.delivered > 1 || int64(p.e.now()) < p.e.coolUntil.Load() {
		return false
	}
	// What cannot become a commit would be looked up alone.
	if it.lookup || streams.Header(it.msg.Headers(), streams.HeaderExpect) != "" || !ix.Lacks(s.key) {
		return false
	}
	s.speculative = true
	return true
}

// unverified reports that the entity was speculatively taken for one that does not exist, and that no write will find out yet. What was
// decided about the command does not count then.
func (s *cachedEntity) unverified() bool { return s.speculative && !s.dirty }

// verify reads the entity of a command, and decides about the command anew.
func (p *partition) verify(ctx context.Context, it *item) (*item, error) {
	if it.end != nil {
		it.end(publish.ErrUnanswered)
	}
	s := it.cached
	*s = *p.newCached(it)
	s.round = p.round
	again := p.newItem(it.delivery)
	again.cached = s
	if err := p.read(ctx, again); err != nil {
		return nil, err
	}
	if err := p.lookUpAnswers(ctx, []*item{again}); err != nil {
		return nil, err
	}
	p.handle(again)
	return again, nil
}
