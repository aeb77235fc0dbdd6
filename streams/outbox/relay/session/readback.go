package session

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// Stored is a row that the stream has.
type Stored struct {
	ID string // of the event: a database that was set back gives its numbers to other rows
	At uint64 // in the stream
}

// readBack is what the stream has of all shards of a source in some span. Shards that are opened together read it once.
type readBack struct {
	from, upto uint64 // after the one, up to the other
	shards     map[int]map[string]Stored
}

// first says that nothing in the database tells of a relay of this source: what the stream has under its name, if anything, is
// of another database. Of shards that are opened together it is asked before the first one enters.
func (o *Opener) first(ctx context.Context) (first bool, err error) {
	if o.Pool == nil || o.fresh != nil {
		return o.fresh != nil && *o.fresh, nil
	}
	err = o.Pool.QueryRow(ctx, `select not exists (select from outbox_cursor where source = $1) and not exists (select from outbox_stream where source = $1)`, o.Source).Scan(&first)
	if err != nil {
		return false, fmt.Errorf("relay: cannot read outbox_cursor: %w", err)
	}
	o.fresh = &first
	return first, nil
}

// readBack takes in what earlier sessions stored between since and the opening marker: at most markRows rows and a batch of
// each shard, unless this one stood still while others went on.
func (o *Opener) readBack(ctx context.Context, s *Session) error {
	if o.back == nil || s.Since < o.back.from {
		o.back = &readBack{from: s.Since, upto: s.Since, shards: map[int]map[string]Stored{}}
	}
	if err := o.scan(ctx, o.back, s.Guarded); err != nil {
		return err
	}
	s.Seen = map[string]Stored{}
	for key, row := range o.back.shards[s.Shard] {
		if row.At <= s.Since {
			continue
		}
		s.Seen[key] = row
		p, err := sink.ParsePosition(key)
		if err != nil || o.Mode == string(outbox.Claim) {
			continue // rows of claim have no order, and what was stored in another mode says nothing here
		}
		if p > s.SeenTo {
			s.SeenTo = p
		}
	}
	return nil
}

// scan reads the headers of what follows in the stream, up to a message that is there.
func (o *Opener) scan(ctx context.Context, b *readBack, upto uint64) error {
	if b.upto+1 >= upto {
		return nil
	}
	c, err := o.JS.OrderedConsumer(ctx, o.Stream.Name, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: b.upto + 1, HeadersOnly: true,
	})
	if err != nil {
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for b.upto < upto {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		o.looked++
		b.upto = meta.Sequence.Stream
		h := m.Headers()
		shard, err := strconv.Atoi(h.Get(sink.HeaderShard))
		if source := h.Get(sink.HeaderSource); source == "" || source != o.Source && source != o.Renamed || err != nil { // a marker has no shard
			continue
		}
		if b.shards[shard] == nil {
			b.shards[shard] = map[string]Stored{}
		}
		id, _, _ := strings.Cut(h.Get(nats.MsgIdHdr), ".") // in structured mode there is no ce-id
		b.shards[shard][h.Get(sink.HeaderPosition)] = Stored{id, b.upto}
	}
	return nil
}

// Oldest is the sequence of the first message that the stream still has.
func (s *Session) Oldest(ctx context.Context) (uint64, error) {
	stream, err := streams.Led(ctx, s.o.JS, s.o.Stream.Name)
	if err != nil {
		return 0, fmt.Errorf("relay: cannot open stream %s: %w", s.o.Stream.Name, err)
	}
	return stream.CachedInfo().State.FirstSeq, nil
}

// Forget drops what was read for shards that were opened together.
func (o *Opener) Forget() { o.back, o.fresh = nil, nil }
