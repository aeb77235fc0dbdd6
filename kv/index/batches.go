package index

// Readers that take what waits when they are ready for it, instead of one change at a time: Queue, of which the reader takes as many as it likes,
// and Batches on it, which takes all and waits for more.

import (
	"context"
	"errors"
	"math"
)

// ErrLost says that changes were dropped: subscribe and list again.
var ErrLost = errors.New("kv: changes were missed")

// Queue is a subscription that its reader empties as it likes, and that knows up to which revision everything was given, which
// a [Subscription] cannot say. While a change waits, a newer one of its key takes its place, so that no key waits for ever.
type Queue struct {
	// Revision is where it begins: a list that is made after it holds everything before.
	Revision uint64

	s  *Subscription
	at uint64
	// When so many changes were given, all up to that revision were: it is what there was when the lap began.
	lap struct{ given, revision uint64 }
}

// Queue begins a subscription in which up to buffer keys, and [WaitingBytes] of their values, may wait for the reader, and that is told of by a value in wake, which has room for one. It
// must be closed. One that begins before the index is ready is lost when it becomes so.
func (ix *Index) Queue(filter Filter, buffer int, wake chan struct{}) *Queue {
	return ix.queue(filter, buffer, wake, false)
}

func (ix *Index) queue(filter Filter, buffer int, wake chan struct{}, drawn bool) *Queue {
	s := &Subscription{
		ix: ix, filter: filter, bound: max(buffer, 1),
		wake: wake, quit: make(chan struct{}), gone: make(chan struct{}), place: make(map[string]int),
	}
	close(s.gone) // nothing pumps
	ix.mu.Lock()
	defer ix.mu.Unlock()
	s.Revision = ix.rev.Load()
	ix.subs.add(s)
	if drawn {
		ix.subs.drawn[s] = struct{}{}
	}
	q := &Queue{Revision: s.Revision, s: s, at: s.Revision}
	q.lap.revision = s.Revision
	return q
}

// Take gives up to most changes, those that wait longest first, and the revision up to which every matching write was given. It gives no further one when the values
// given have that many bytes. The error may be [ErrLost].
func (q *Queue) Take(most, bytes int) (changes []Change, revision uint64, err error) {
	at := q.s.ix.rev.Load() // before the queue: what is in the index up to here was offered
	s := q.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return nil, q.at, ErrLost
	}
	n, size := s.head, 0
	for ; n < len(s.queue) && n-s.head < most && size < bytes; n++ {
		size += len(s.queue[n].Value)
	}
	if n == len(s.queue) {
		changes, s.queue, s.head, s.bytes = s.queue[s.head:], nil, 0, 0
		clear(s.place)
	} else {
		changes = make([]Change, 0, n-s.head)
		for range n - s.head {
			c, _ := s.pop()
			changes = append(changes, c)
		}
	}
	s.given += uint64(len(changes))
	switch waiting := uint64(len(s.queue) - s.head); {
	case waiting == 0:
		q.at = max(q.at, at)
		q.lap.given, q.lap.revision = s.given, at
	case s.given >= q.lap.given:
		q.at = max(q.at, q.lap.revision)
		q.lap.given, q.lap.revision = s.given+waiting, at
	}
	return changes, q.at, nil
}

// Bound changes how many keys may wait.
func (q *Queue) Bound(buffer int) {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.s.bound = max(buffer, 1)
}

// Close ends it. It may be called again.
func (q *Queue) Close() { q.s.Close() }

// Batches is a queue whose reader gets all that waits at once, and is told when only the revision moves on.
type Batches struct{ *Queue }

// Batches begins a subscription in which up to buffer keys may wait for the reader. It must be closed. One that begins
// before the index is ready is lost when it becomes so.
func (ix *Index) Batches(filter Filter, buffer int) *Batches {
	return &Batches{ix.queue(filter, buffer, make(chan struct{}, 1), true)}
}

// Next waits for changes and gives all of them, the newest of each key; there are none when only the revision moved on.
// Every matching write up to the revision was given then. The error is [ErrLost], or that of ctx.
func (b *Batches) Next(ctx context.Context) (changes []Change, revision uint64, err error) {
	for {
		before := b.at
		changes, revision, err = b.Take(all, all)
		if err != nil || len(changes) > 0 || revision > before {
			return changes, revision, err
		}
		select {
		case <-b.s.wake:
		case <-ctx.Done():
			return nil, b.at, ctx.Err()
		}
	}
}

const all = math.MaxInt
