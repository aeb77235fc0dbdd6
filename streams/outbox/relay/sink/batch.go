package sink

import (
	"context"
	"errors"
)

const (
	// MaxAtomic is the server's limit of messages in an atomic batch.
	MaxAtomic = 1000
	// MaxBytes is that of the payloads of a batch, so that neither side holds more than this in memory.
	MaxBytes = 8 << 20
)

// Batches stores any number of items.
type Batches struct {
	// Publish stores a batch, as [Publisher.Publish] does. The markers go with the last one.
	Publish func(ctx context.Context, items []Item, last bool) (int, error)
	// Refused is told of a row that the stream does not take, and of those behind it of its aggregate, before anything else is stored. All of
	// them are left out.
	Refused func(ctx context.Context, r *Row, why error, behind []*Row) error
}

// Store stores items in order; the last batch, which may be nothing else, has room for so many markers. It does not end with ctx: what
// was begun is ended, as its outcome would be unknown.
func (b Batches) Store(ctx context.Context, items []Item, marks int) error {
	ctx = context.WithoutCancel(ctx)
	for len(items) > 0 || marks > 0 {
		n := upTo(items, MaxAtomic-marks)
		last := n == len(items)
		_, err := b.Publish(ctx, items[:n], last)
		var bad *RefusedError
		switch {
		case errors.As(err, &bad):
			r := items[bad.Index].Row
			var behind []*Row
			items, behind = without(items[bad.Index+1:], r.Aggregate())
			if err := b.Refused(ctx, r, bad.Err, behind); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if items = items[n:]; last {
			marks = 0
		}
	}
	return nil
}

// upTo is how many items make a batch.
func upTo(items []Item, most int) int {
	bytes := 0
	for i, it := range items {
		if bytes += len(it.Row.Payload); i > 0 && bytes > MaxBytes || i == most {
			return i
		}
	}
	return len(items)
}

// without splits off what belongs to an aggregate.
func without(items []Item, a Aggregate) (rest []Item, behind []*Row) {
	for _, it := range items {
		if it.Row.Aggregate() == a {
			behind = append(behind, it.Row)
		} else {
			rest = append(rest, it)
		}
	}
	return rest, behind
}
