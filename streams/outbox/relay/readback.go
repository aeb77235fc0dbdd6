package relay

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams/outbox"
)

// stored is a row that the stream has.
type stored struct {
	id string // of the event: a database that was set back gives its numbers to other rows
	at uint64 // in the stream
}

// readBack is what the stream has of all shards of a source in some span. Shards that are opened together read it once.
type readBack struct {
	from, upto uint64 // after the one, up to the other
	shards     map[int]map[string]stored
}

// first says that nothing in the database tells of a relay of this source: what the stream has under its name, if anything, is
// of another database.
func (o *opener) first(ctx context.Context) (first bool, err error) {
	if o.pool == nil {
		return false, nil
	}
	err = o.pool.QueryRow(ctx, `select not exists (select from outbox_cursor where source = $1) and not exists (select from outbox_stream where source = $1)`, o.source).Scan(&first)
	if err != nil {
		return false, fmt.Errorf("relay: cannot read outbox_cursor: %w", err)
	}
	return first, nil
}

// readBack takes in what earlier sessions stored between since and the opening marker: at most markRows rows and a batch of
// each shard, unless this one stood still while others went on.
func (o *opener) readBack(ctx context.Context, s *session) error {
	if o.back == nil || s.since < o.back.from {
		o.back = &readBack{from: s.since, upto: s.since, shards: map[int]map[string]stored{}}
	}
	if err := o.scan(ctx, o.back, s.guarded); err != nil {
		return err
	}
	s.seen = map[string]stored{}
	for key, row := range o.back.shards[s.shard] {
		if row.at <= s.since {
			continue
		}
		s.seen[key] = row
		p, err := parsePosition(key)
		if err != nil || o.mode == string(outbox.Claim) || p.lsn != (o.mode == string(outbox.WAL)) {
			continue // rows of claim have no order, and what was stored in another mode says nothing here
		}
		if p.after(s.seenTo) {
			s.seenTo = p
		}
	}
	return nil
}

// scan reads the headers of what follows in the stream, up to a message that is there.
func (o *opener) scan(ctx context.Context, b *readBack, upto uint64) error {
	if b.upto+1 >= upto {
		return nil
	}
	c, err := o.js.OrderedConsumer(ctx, o.stream.Name, jetstream.OrderedConsumerConfig{
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
		shard, err := strconv.Atoi(h.Get(HeaderShard))
		if h.Get(HeaderSource) != o.source || err != nil { // a marker has no shard
			continue
		}
		if b.shards[shard] == nil {
			b.shards[shard] = map[string]stored{}
		}
		id, _, _ := strings.Cut(h.Get(nats.MsgIdHdr), ".") // in structured mode there is no ce-id
		b.shards[shard][h.Get(HeaderPosition)] = stored{id, b.upto}
	}
	return nil
}

// stored says whether an earlier session stored the row.
func (s *session) stored(r *row) bool {
	if len(s.seen) == 0 || r.pos.after(s.seenTo) {
		return false
	}
	there, ok := s.seen[r.key()]
	return ok && there.id == r.ID.String()
}

// prune forgets what the table does not have: rows that a database lost which was set back. They do not come again.
func (e *logEngine) prune(ctx context.Context, s *session) error {
	if len(s.seen) == 0 {
		return nil
	}
	keys := make([]int64, 0, len(s.seen))
	for key := range s.seen {
		if p, err := parsePosition(key); err == nil && !p.lsn {
			keys = append(keys, int64(p.at)) //nolint:gosec // a number of a row
		}
	}
	there, last := make(map[string]stored, len(s.seen)), position{}
	for some := range slices.Chunk(keys, 10000) {
		rows, err := e.pool.Query(ctx, `select l.seq, l.event_id::text from unnest($1::bigint[]) as k (seq) cross join lateral (select * from outbox_log l where l.seq = k.seq limit 1) as l`, some)
		if err != nil {
			return fmt.Errorf("relay: cannot look for rows of outbox_log: %w", err)
		}
		var p position
		var id string
		if _, err := pgx.ForEachRow(rows, []any{&p.at, &id}, func() error {
			if row := s.seen[p.String()]; row.id == id {
				if there[p.String()] = row; p.after(last) {
					last = p
				}
			}
			return nil
		}); err != nil {
			return fmt.Errorf("relay: cannot look for rows of outbox_log: %w", err)
		}
	}
	s.seen, s.seenTo = there, last
	return nil
}
