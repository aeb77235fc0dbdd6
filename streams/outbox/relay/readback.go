package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
// of another database. Of shards that are opened together it is asked before the first one enters.
func (o *opener) first(ctx context.Context) (first bool, err error) {
	if o.pool == nil || o.fresh != nil {
		return o.fresh != nil && *o.fresh, nil
	}
	err = o.pool.QueryRow(ctx, `select not exists (select from outbox_cursor where source = $1) and not exists (select from outbox_stream where source = $1)`, o.source).Scan(&first)
	if err != nil {
		return false, fmt.Errorf("relay: cannot read outbox_cursor: %w", err)
	}
	o.fresh = &first
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
		if err != nil || o.mode == string(outbox.Claim) {
			continue // rows of claim have no order, and what was stored in another mode says nothing here
		}
		if p > s.seenTo {
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
		if source := h.Get(HeaderSource); source == "" || source != o.source && source != o.renamed || err != nil { // a marker has no shard
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
	_, ok := s.storedAt(r)
	return ok
}

// storedAt is where in the stream that is.
func (s *session) storedAt(r *row) (at uint64, ok bool) {
	if len(s.lost) > 0 {
		if at, ok := s.lost[r.ID]; ok {
			return at, true
		}
	}
	if len(s.seen) == 0 || r.pos > s.seenTo {
		return 0, false
	}
	there, ok := s.seen[r.key()]
	return there.at, ok && there.id == r.ID.String()
}

// prune compares what was read back with the table. Rows that a database lost which was set back are not there; an application
// that did not hear of its commit appends them once more, under other numbers and the same ids, now or later.
func (e *logEngine) prune(ctx context.Context, s *session) error {
	if len(s.seen) == 0 {
		return nil
	}
	there, last := make(map[string]stored, len(s.seen)), position(0)
	found := func(p position, row stored) {
		if there[p.String()] = row; p > last {
			last = p
		}
	}
	missing := make(map[uuid.UUID]position, len(s.seen))
	keys := make([]int64, 0, len(s.seen))
	for key, row := range s.seen {
		id, err := uuid.Parse(row.id)
		p, wrong := parsePosition(key)
		if err == nil && wrong == nil {
			keys, missing[id] = append(keys, int64(p)), p
		}
	}
	err := match(ctx, e.pool, `select l.seq, l.event_id from unnest($1::bigint[]) as k (seq) cross join lateral (select * from outbox_log l where l.seq = k.seq limit 1) as l`, keys, func(p position, id uuid.UUID) {
		if row := s.seen[p.String()]; row.id == id.String() {
			found(p, row)
			delete(missing, id)
		}
	})
	if err != nil {
		return err
	}
	ids := slices.Collect(maps.Keys(missing))
	s.lost = map[uuid.UUID]uint64{}
	for id, p := range missing {
		if p > s.pos { // a row before it was dropped for its age
			s.lost[id] = s.seen[p.String()].at
		}
	}
	err = match(ctx, e.pool, `select seq, event_id from outbox_log where event_id = any ($1)`, ids, func(p position, id uuid.UUID) {
		delete(s.lost, id)
		if _, own := there[p.String()]; !own {
			found(p, s.seen[missing[id].String()])
		}
	})
	if err != nil {
		return err
	}
	s.seen, s.seenTo = there, last
	return nil
}

// match calls found for rows of outbox_log, of a query that takes a list.
func match[T any](ctx context.Context, pool *pgxpool.Pool, query string, list []T, found func(position, uuid.UUID)) error {
	for some := range slices.Chunk(list, 10000) {
		rows, err := pool.Query(ctx, query, some)
		if err != nil {
			return fmt.Errorf("relay: cannot look for rows of outbox_log: %w", err)
		}
		var p position
		var id uuid.UUID
		if _, err := pgx.ForEachRow(rows, []any{&p, &id}, func() error { found(p, id); return nil }); err != nil {
			return fmt.Errorf("relay: cannot look for rows of outbox_log: %w", err)
		}
	}
	return nil
}
