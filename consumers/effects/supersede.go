package effects

import (
	"context"
	"errors"
	"time"

	"github.com/bcc94042/instar/machines"
)

// errTwice says that another message of the same attempt is performed here.
var errTwice = errors.New("another message of this attempt is under way")

// againAfter is when such a message is looked at again.
const againAfter = 5 * time.Second

// lately is how long a result that was stored may take until the entity does not wait for its attempt any more. Should the stream have lost it, the attempt is performed again after that.
const lately = 2 * againAfter

// hasResult notes an attempt whose result is stored.
func (k *kind) hasResult(attempt string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for len(k.order) > 0 && now.Sub(k.stored[k.order[0]]) > lately {
		delete(k.stored, k.order[0])
		k.order = k.order[1:]
	}
	if k.stored == nil {
		k.stored = map[string]time.Time{}
	}
	if _, noted := k.stored[attempt]; !noted {
		k.order = append(k.order, attempt)
	}
	k.stored[attempt] = now
}

// performing is a task of an entity.
type performing struct {
	attempt string
	fence   uint64
	stop    context.CancelCauseFunc
	over    bool // the entity waits for a later task
}

// supersede ends what is performed for an earlier state of the same entity: nobody waits for it any more, and one entity, whatever is
// asked of it, should not hold the places of all others. It, and performed at the end, fail with errUnwanted when that has happened to the task itself. It fails with errTwice
// for a second message of an attempt that is performed already, or whose result is not stored yet: until leave; and for one whose result was stored lately, of which the engine may not know yet.
func (k *kind) supersede(ctx context.Context, t *machines.Task) (_ context.Context, performed func() error, leave func(), err error) {
	mine := &performing{attempt: t.Attempt, fence: t.Fence}
	ctx, mine.stop = context.WithCancelCause(ctx)
	for later := k.enter(t.Key(), mine, nil); later != nil; later = k.enter(t.Key(), mine, later) {
		if later.attempt == mine.attempt { // sent by two owners of its partition, one after the other
			mine.stop(nil)
			return nil, nil, nil, errTwice
		}
		wanted, err := k.wanted(ctx, t)
		if err == nil && !wanted {
			err = errUnwanted
		}
		if err != nil {
			mine.stop(nil)
			return nil, nil, nil, err
		}
	}
	return ctx, func() error {
			mine.stop(nil)
			k.mu.Lock()
			defer k.mu.Unlock()
			if mine.over {
				return errUnwanted
			}
			return nil
		}, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.under[t.Key()] == mine {
				delete(k.under, t.Key())
			}
		}, nil
}

// enter makes a task the one that is performed for its entity, instead of another one. It does not, and returns that, when that one has no lower
// fence, unless it is the one that was found before the entity was asked once more: where an entity was deleted and created again, or the
// store set back, fences begin anew.
func (k *kind) enter(key string, mine, found *performing) (later *performing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	other := k.under[key]
	switch {
	case other == nil && time.Since(k.stored[key+" "+mine.attempt]) < lately:
		return &performing{attempt: mine.attempt}
	case other == nil:
	case other.fence >= mine.fence && other != found:
		return other
	default:
		other.over = true
		other.stop(errUnwanted)
	}
	k.under[key] = mine
	return nil
}
