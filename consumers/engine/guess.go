package engine

import (
	"context"
	"errors"
	"time"

	"github.com/bcc94042/instar/streams"
)

// Whoever creates an entity would wait for its bucket to say that there is none. The index of this process knows nearly
// always, and where it is late nothing is lost: the commit asks that the key was never written, and what comes out without
// a commit is not said before the bucket was asked. A wrong guess costs a start of the partition.

// doubtFor is how long nothing is guessed after any partition of this process has failed: the index may be late for the
// same reason, and what was done and not acked comes again.
const doubtFor = 30 * time.Second

var errGuess = errors.New("it was taken for one that is not there")

// guess takes an entity for one that is not there, if the command creates it and its index lacks it.
func (p *partition) guess(s *slot, it *item) bool {
	ix := p.e.Indexes[s.m.Name]
	if input, _ := s.m.Input(it.addr.Last); ix == nil || !input.Birth || it.delivered > 1 || int64(p.e.now()) < p.e.doubt.Load() {
		return false
	}
	// What cannot become a commit would be looked up alone.
	if it.lookup || streams.Header(it.msg.Headers(), streams.HeaderExpect) != "" || !ix.Lacks(s.key) {
		return false
	}
	s.guessed = true
	return true
}

// unsure reports that the entity was guessed not to be there, and that no commit will find out yet. What was made of the
// command is worth nothing then.
func (s *slot) unsure() bool { return s.guessed && !s.dirty }

// ascertain looks the entity of a command up, and handles the command anew.
func (p *partition) ascertain(ctx context.Context, it *item) (*item, error) {
	if it.end != nil {
		it.end(streams.ErrUnanswered)
	}
	s := it.slot
	*s = *p.newSlot(it)
	s.round = p.round
	again := p.read(it.delivery)
	again.slot = s
	if err := p.fill(ctx, again); err != nil {
		return nil, err
	}
	if err := p.recall(ctx, []*item{again}); err != nil {
		return nil, err
	}
	p.handle(again)
	return again, nil
}
