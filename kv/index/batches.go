package index

import (
	"context"
	"errors"
)

// ErrLost says that changes were dropped: subscribe and list again.
var ErrLost = errors.New("kv: changes were missed")

// Batches is a subscription that its reader empties: it gets all that waits at once, and knows up to which revision it
// has everything, which a [Subscription] cannot say.
type Batches struct {
	// Revision is where it begins: a list that is made after it holds everything before.
	Revision uint64

	s  *Subscription
	at uint64
}

// Batches begins a subscription in which up to buffer keys may wait for the reader. It must be closed. One that begins
// before the index is ready is lost when it becomes so.
func (ix *Index) Batches(filter Filter, buffer int) *Batches {
	s := &Subscription{
		ix: ix, filter: filter, bound: max(buffer, 1),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), gone: make(chan struct{}), place: make(map[string]int),
	}
	close(s.gone) // nothing pumps
	ix.mu.Lock()
	defer ix.mu.Unlock()
	s.Revision = ix.rev.Load()
	ix.subs.add(s)
	ix.subs.drawn[s] = struct{}{}
	return &Batches{Revision: s.Revision, s: s, at: s.Revision}
}

// Next waits for changes and gives all of them, the newest of each key; there are none when only the revision moved on.
// Every matching write up to the revision was given then. The error is [ErrLost], or that of ctx.
func (b *Batches) Next(ctx context.Context) (changes []Change, revision uint64, err error) {
	for {
		at := b.s.ix.rev.Load() // before the queue: what is in the index up to here was offered
		changes, lost := b.s.drain()
		if lost {
			return nil, b.at, ErrLost
		}
		if len(changes) > 0 || at > b.at {
			b.at = max(b.at, at)
			return changes, b.at, nil
		}
		select {
		case <-b.s.wake:
		case <-ctx.Done():
			return nil, b.at, ctx.Err()
		}
	}
}

// Close ends it. It may be called again.
func (b *Batches) Close() { b.s.Close() }

// drain takes everything that waits.
func (s *Subscription) drain() (changes []Change, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return nil, true
	}
	changes, s.queue, s.head = s.queue[s.head:], nil, 0
	clear(s.place)
	return changes, false
}
