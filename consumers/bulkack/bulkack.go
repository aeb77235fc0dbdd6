// Package bulkack ends the commands of one partition, many at once.
//
// Where every write is fsynced, each ack costs one: the stream notes the removal of each message on its own, and new
// commands wait meanwhile. There the partition takes what it has done out of the stream by one purge for many. What a
// crash leaves in the stream comes again and is known by the marks, as with an ack that was lost.
package bulkack

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

const (
	// After is how many commands are purged at once, or two batches if they are fewer: below the consumer's bound on what is not acked.
	After = 512
	// Within is how long a purge may take: as long as an append may take on the same disk.
	Within = 5 * time.Second

	every = 500 * time.Millisecond // when there are fewer
)

// Acker ends the commands of one partition. A nil one ends none: each is to be acked. It is for one goroutine at a time.
type Acker struct {
	purge   func(ctx context.Context, upTo uint64) error
	log     *slog.Logger
	tick    *time.Ticker
	after   int
	last    time.Time // of the purges
	done    int       // commands that are done and still in the stream
	upTo    uint64    // the last of them: all of the partition up to it are done
	refused bool      // the stream may not be purged
	paused  bool
	silent  bool // the last purge was not answered
}

// New is for the partition of a number, which takes batches of some size. purge takes what it has in the stream out of it, up to a sequence.
func New(partition, batch int, log *slog.Logger, purge func(ctx context.Context, upTo uint64) error) *Acker {
	offset := every * time.Duration(partition) / streams.Partitions // not all of them at once
	return &Acker{purge: purge, log: log.With("partition", partition), tick: time.NewTicker(every), after: min(After, 2*batch), last: time.Now().Add(offset)}
}

// Stop ends its ticker.
func (a *Acker) Stop() {
	if a != nil {
		a.tick.Stop()
	}
}

// Takes reports whether commands may stay in the stream until the next purge. Else they are to be acked.
func (a *Acker) Takes() bool { return a != nil && !a.refused && !a.paused }

// Pause has each command acked, until Resume.
func (a *Acker) Pause() {
	if a != nil {
		a.paused = true
	}
}

// Resume ends a pause.
func (a *Acker) Resume() {
	if a != nil {
		a.paused = false
	}
}

// Due tells when there may be something to purge.
func (a *Acker) Due() <-chan time.Time {
	if a == nil {
		return nil
	}
	return a.tick.C
}

// Done notes that commands are done: so many, and all of the partition up to a sequence.
func (a *Acker) Done(n int, upTo uint64) {
	if a != nil {
		a.done += n
		a.upTo = max(a.upTo, upTo) // what was delivered again lies below
	}
}

// Purge removes the commands that are done from the stream, when there are enough or it is time. A purge that is not answered is tried
// again: nothing is lost by one that comes late, or never; it fails when too many have gathered.
func (a *Acker) Purge(ctx context.Context) error {
	if !a.Takes() || a.done == 0 || a.done < a.after && time.Since(a.last) < every {
		return nil
	}
	a.last = time.Now()
	err := a.now(ctx, Within)
	a.silent = err != nil
	if err != nil && a.done >= 2*a.after {
		return err
	}
	if err != nil {
		a.log.Warn("completed commands stay in the stream for now", "error", err)
	}
	return nil
}

// Last is for whoever takes the partition next, or again: it should not see what was done. A value that somebody broke
// by hand meanwhile does not say that it knows a command, which would be taken for one that cannot be processed.
func (a *Acker) Last(ctx context.Context) {
	if !a.Takes() || a.silent || a.done == 0 {
		return
	}
	if err := a.now(context.WithoutCancel(ctx), streams.ReadWithin); err != nil {
		a.log.Debug("completed commands stay in the stream and will be redelivered", "error", err)
	}
}

func (a *Acker) now(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := a.purge(ctx, a.upTo)
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused): // what was done so far comes again, and is acked
		a.refused = true
		a.log.Warn("the stream of commands cannot be purged; acknowledging each command instead", "error", refused)
	case err != nil:
		return err
	}
	a.done = 0
	return nil
}
