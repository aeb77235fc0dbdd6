package engine

import (
	"context"
	"fmt"

	"github.com/bcc94042/instar/consumers/bulkack"
	"github.com/bcc94042/instar/internal/failpoint"
	"github.com/bcc94042/instar/streams"
)

// ackNow ends a command before anything follows it. What is refused because its entity is parked is answered only when it cannot come again: nothing remembers the refusal, and somebody may repair the value meanwhile.
func (p *partition) ackNow(ctx context.Context, it *item) error {
	if !it.parked() {
		p.e.Acking.Lock()
		defer p.e.Acking.Unlock()
		if it.seq <= p.alone { // it must be gone if the next one ends the process
			return it.msg.DoubleAck(ctx)
		}
		return it.msg.Ack()
	}
	if err := it.msg.DoubleAck(ctx); err != nil {
		return err
	}
	p.reply(it)
	return nil
}

// ackKnown ends the commands of a batch that the next ones need not wait for: while streams are synced, that takes as long as the disk does. How many wait is bounded by the consumer.
func (p *partition) ackKnown(items []*item) {
	p.e.Acking.Lock()
	defer p.e.Acking.Unlock()
	for _, it := range items {
		if it.known {
			_ = it.msg.Ack() // without a connection it comes again
			failpoint.Hit("between-acks")
		}
	}
}

// bulkAcker is for a single server with commits in groups, which is where the stream fsyncs each write. Elsewhere it is nil.
func (p *partition) bulkAcker() *bulkack.Acker {
	if !p.e.Appender.Grouping() || p.e.Replicated {
		return nil
	}
	return bulkack.New(p.n, p.e.Batch, p.e.Log, func(ctx context.Context, upTo uint64) error {
		return p.purge(ctx, p.e.Names.StoredIn(p.n), upTo)
	})
}

// known reports whether a command may stay in the stream for a while. What only memory knows, such as a refusal without a commit behind it, is acked at once: by the time it came again it might be decided otherwise.
func (p *partition) known(it *item) bool {
	return it.cached != nil && !it.cached.unstored && it.deadLetter == "" && !it.parked() && it.seq > p.alone
}

// purge removes what COMMANDS has under a filter, up to a sequence. It is one at a time in the process: those of one stream are serial in the server, and others need its workers too.
func (p *partition) purge(ctx context.Context, filter string, upTo uint64) error {
	stream := p.e.Names.Stream(streams.CommandStream)
	select {
	case p.e.purging <- struct{}{}:
		defer func() { <-p.e.purging }()
	case <-ctx.Done():
		return fmt.Errorf("cannot purge %s in time: %w", stream, ctx.Err())
	}
	if p.anew() {
		return nil
	}
	if err := streams.Purge(ctx, p.e.NC, stream, filter, upTo); err != nil {
		return fmt.Errorf("cannot purge %s of %s up to %d: %w", stream, filter, upTo, err)
	}
	return nil
}

// anew reports whether the connection was made anew since the partition began: a server that lost its last messages gives their sequences out again.
func (p *partition) anew() bool { return p.e.NC.Stats().Reconnects != p.found.Reconnects }
