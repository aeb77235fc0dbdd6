package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Where every write is fsynced, each ack costs one: the stream notes the removal of each message on its own, and new
// commands wait meanwhile. There the partition takes what it has done out of the stream by one purge for many. What a
// crash leaves in the stream comes again and is known by the marks, as with an ack that was lost. What only memory knows,
// such as a refusal without a commit behind it, is acked at once: by the time it came again it might be decided otherwise.
const (
	sweepAfter  = 512                    // commands, or two batches if they are fewer: below the consumer's bound on what is not acked
	sweepEvery  = 500 * time.Millisecond // when there are fewer
	sweepWithin = 5 * time.Second        // as long as an append may take on the same disk
)

// broom ends the commands of one partition, many at once.
type broom struct {
	tick    *time.Ticker
	after   int
	swept   time.Time // the last time
	done    int       // commands that are done and still in the stream
	last    uint64    // the last of them: all of the partition up to it are done
	refused bool      // the stream may not be purged: ack
	silent  bool      // the last purge was not answered
}

// takeBroom is for a single server with commits in groups, which is where the stream fsyncs each write. Elsewhere it is nil.
func (p *partition) takeBroom() *broom {
	if !p.e.Appender.Grouping() || p.e.Replicated {
		return nil
	}
	offset := sweepEvery * time.Duration(p.n) / streams.Partitions // not all of them at once
	return &broom{tick: time.NewTicker(sweepEvery), after: min(sweepAfter, 2*p.e.Batch), swept: time.Now().Add(offset)}
}

func (b *broom) putAway() {
	if b != nil {
		b.tick.Stop()
	}
}

// takes reports whether the command may stay until the next sweep.
func (b *broom) takes(it *item) bool {
	return b != nil && !b.refused && it.slot != nil && !it.slot.unstored && it.letter == "" && !it.parked()
}

// due tells when there may be something to sweep.
func (b *broom) due() <-chan time.Time {
	if b == nil {
		return nil
	}
	return b.tick.C
}

// note takes a settled batch.
func (b *broom) note(items []*item) {
	b.done += len(items)
	b.last = max(b.last, items[len(items)-1].seq) // what was delivered again lies below
}

// sweep removes the commands that are done from the stream, when there are enough or it is time. No batch is being settled
// beside it. A purge that is not answered is tried again: nothing is lost by one that comes late, or never.
func (p *partition) sweep(ctx context.Context) error {
	b := p.broom
	if b == nil || b.refused || b.done == 0 || b.done < b.after && time.Since(b.swept) < sweepEvery {
		return nil
	}
	b.swept = time.Now()
	ctx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	err := p.sweepUp(ctx)
	b.silent = err != nil
	if err != nil && b.done >= 2*b.after {
		return err
	}
	if err != nil {
		p.e.Log.Warn("commands that are done stay in the stream for now", "partition", p.n, "error", err)
	}
	return nil
}

// lastSweep is for whoever takes the partition next, or again: it should not see what was done. A value that somebody broke
// by hand meanwhile does not say that it knows a command, which would be taken for one that cannot be processed.
func (p *partition) lastSweep(ctx context.Context) {
	if p.broom == nil || p.broom.refused || p.broom.silent || p.broom.done == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), streams.ReadWithin)
	defer cancel()
	if err := p.sweepUp(ctx); err != nil {
		p.e.Log.Debug("commands that are done stay in the stream and will come again", "partition", p.n, "error", err)
	}
}

// sweepUp takes what is done out of the stream.
func (p *partition) sweepUp(ctx context.Context) error {
	b := p.broom
	err := p.purge(ctx, p.e.Names.StoredIn(p.n), b.last)
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused): // what was done so far comes again, and is acked
		b.refused = true
		p.e.Log.Warn("the stream of commands refuses to be purged: each command is acked instead", "partition", p.n, "error", refused)
	case err != nil:
		return err
	}
	b.done = 0
	return nil
}

// purge removes what COMMANDS has under a filter, up to a sequence. It is one at a time in the process: those of one stream are
// serial in the server, and others need its workers too.
func (p *partition) purge(ctx context.Context, filter string, upTo uint64) error {
	stream := p.e.Names.Stream(streams.CommandStream)
	select {
	case p.e.purging <- struct{}{}:
		defer func() { <-p.e.purging }()
	case <-ctx.Done():
		return fmt.Errorf("cannot purge %s in time: %w", stream, ctx.Err())
	}
	if p.e.NC.Stats().Reconnects != p.found.reconnects { // a server that lost its last messages gives their sequences out again
		return nil
	}
	if err := streams.Purge(ctx, p.e.NC, stream, filter, upTo); err != nil {
		return fmt.Errorf("cannot purge %s of %s up to %d: %w", stream, filter, upTo, err)
	}
	return nil
}
