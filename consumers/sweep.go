package consumers

import (
	"context"
	"encoding/json"
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
	sweepAfter = 512                    // commands; well below the consumer's bound on those that are not acked
	sweepEvery = 500 * time.Millisecond // when there are fewer
)

// broom ends the commands of one partition, many at once. Nil ends none.
type broom struct {
	tick *time.Ticker
	done int    // commands that are done and still in the stream
	last uint64 // the last of them: all of the partition up to it are done
}

func (p *partition) takeBroom() {
	p.broom = nil
	if p.e.Appender.Grouping() {
		p.broom = &broom{tick: time.NewTicker(sweepEvery)}
	}
}

// due tells when there may be something to sweep.
func (b *broom) due() <-chan time.Time {
	if b == nil {
		return nil
	}
	return b.tick.C
}

// note takes a settled batch, which is the next of the partition in stream order.
func (b *broom) note(items []*item) {
	b.done += len(items)
	b.last = items[len(items)-1].seq
}

// sweep removes the commands that are done from the stream. No batch is being settled beside it.
func (p *partition) sweep(ctx context.Context) error {
	b := p.broom
	if b == nil || b.done == 0 {
		return nil
	}
	req, err := json.Marshal(map[string]any{"filter": p.e.Names.StoredIn(p.n), "seq": b.last + 1}) // up to, without it
	if err != nil {
		return err
	}
	stream := p.e.Names.Stream(streams.CommandStream)
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	m, err := p.e.NC.RequestWithContext(ctx, "$JS.API.STREAM.PURGE."+stream, req)
	if err != nil {
		return fmt.Errorf("cannot purge %s up to command %d: %w", stream, b.last, err)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fmt.Errorf("cannot read the answer to a purge of %s: %w", stream, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("cannot purge %s up to command %d: %w", stream, b.last, answer.Error)
	}
	b.done = 0
	return nil
}

// putAway sweeps a last time: who takes the partition next need not see again what was done.
func (p *partition) putAway(ctx context.Context) {
	if p.broom == nil {
		return
	}
	p.broom.tick.Stop()
	if err := p.sweep(context.WithoutCancel(ctx)); err != nil {
		p.e.Log.Debug("commands that are done stay in the stream and will come again", "partition", p.n, "error", err)
	}
}
