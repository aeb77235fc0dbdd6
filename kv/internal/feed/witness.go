package feed

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// A stream that loses its end (in a power loss without fsync, or because it was restored) gives the sequences of what it lost
// out again, so a follower cannot tell by them alone whether it resumes in the history that it has seen. What is lost is
// an end, though: as long as the message of one revision is there, so is everything before it. And a key that was
// written again after the position comes when the feed is resumed, whatever became of the revision that was seen. So the follower
// remembers the last keys that it took, and asks for them, the newest first, until one still is what it was.

// MaxWitnesses is how many keys are remembered. Usually the first one that is asked for decides; when all of them were
// written again meanwhile, everything is read anew.
const MaxWitnesses = 32

// witness is the last update of a key that was taken.
type witness struct {
	key string
	rev uint64
	at  int64
}

// witnesses are those of different keys, the oldest first.
type witnesses struct {
	last    []witness
	dropped bool // there were more
}

// note takes the updates of a batch. A copy that was made before must not be used any more.
func (w *witnesses) note(batch []Update) {
	list := w.last
	if n := len(batch) - MaxWitnesses; n > 0 {
		batch, w.dropped = batch[n:], true
	}
	for _, u := range batch {
		list = slices.DeleteFunc(list, func(o witness) bool { return o.key == u.Key })
		list = append(list, witness{u.Key, u.Revision, u.At})
	}
	if n := len(list) - MaxWitnesses; n > 0 {
		list, w.dropped = list[n:], true
	}
	w.last = list
}

// resume is the revision after which to go on, or [ErrReset] when the stream is not known to have what was taken. Without
// any witness there is nothing to compare.
func (p *Position) resume(ctx context.Context, s jetstream.Stream, prefix string) (uint64, error) {
	if len(p.seen.last) == 0 {
		return p.Revision, nil
	}
	for _, w := range slices.Backward(p.seen.last) {
		m, err := s.GetLastMsgForSubject(ctx, prefix+w.key)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return 0, ErrReset
		case err != nil:
			return 0, err
		case m.Sequence > p.Revision: // it comes again
		case m.Sequence == w.rev && m.Time.UnixNano() == w.at:
			return w.rev, nil // what was taken after it was written again
		default:
			return 0, ErrReset
		}
	}
	if p.seen.dropped {
		return 0, ErrReset
	}
	return 0, nil // all that was ever taken was written again
}
