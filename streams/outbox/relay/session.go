package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/streams"
)

// marker is the body of the message that says how far a shard has come and who relays it. The last marker of a shard is
// the only truth about both.
type marker struct {
	Session    string    `json:"session"` // of the relay that wrote it; new each time that a shard is opened
	Node       string    `json:"node"`
	Position   string    `json:"position"`        // every row up to here is in the stream, or parked in the database
	Generation uint64    `json:"generation"`      // that the database had when it was written
	Cluster    string    `json:"cluster"`         // system_identifier, database and schema of the Postgres that positions belong to
	Since      uint64    `json:"since,omitempty"` // where to read back from: earlier sessions stored more than is accounted for by Position
	Clean      bool      `json:"clean,omitempty"` // the session ended with it: there is nothing to read back
	At         time.Time `json:"at"`
}

// When a marker is due.
const (
	markRows  = 4096
	markAfter = 5 * time.Second
)

// opener opens shards of one source.
type opener struct {
	js      jetstream.JetStream
	pub     *publisher
	stream  Stream
	source  string
	renamed string // what the source was called before
	mode    string
	node    string
	cluster string
	clock   func() time.Time
	pool    *pgxpool.Pool // nil: nothing is known of earlier relays
	back    *readBack     // what was read for the shards that are being opened
	fresh   *bool         // this is the first relay of the source; nil: it was not asked
	looked  int           // at so many messages to read back
}

// session is a shard that this relay has opened: it alone can write to it until somebody else opens it.
type session struct {
	o     *opener
	shard int
	id    string

	pos        position             // every row up to here is stored or parked
	seen       map[string]stored    // by key, rows that earlier sessions stored and did not account for
	seenTo     position             // the last of them, where they have an order
	lost       map[uuid.UUID]uint64 // events that the stream has and the table does not, and where
	known      bool                 // what they are
	aside      map[string]string    // by key, ids of rows that earlier sessions parked beyond the position: they are read again
	rows       int                  // stored since the last marker
	written    time.Time            // of the last marker
	last       position             // in the last marker
	generation uint64               // of the last marker, in the database
	back       bool                 // the database was set back since
	before     marker               // the last one before its own, and
	from       uint64               // its sequence; 0 for none
	since      uint64               // from where the next session has to read back until this one is settled
	ending     bool                 // the next marker is the last one
	guarded    uint64               // sequence of the last marker
	noted      uint64               // the one that the database knows
	mended     bool                 // the stream was set back, and what it lost is published again: the database knows a later one
	guardText  []string

	subject     string
	subjectSlot []string
}

func (o *opener) subject(shard int) string {
	return o.stream.Prefix + "-pos." + o.source + "." + o.mode + "." + strconv.Itoa(shard)
}

// errForeign says that a position belongs to another database, or to another schema of it.
var errForeign = errors.New("the position in the stream belongs to another outbox")

// errNamed says that a database is relayed under another name: each of the two would publish everything.
var errNamed = errors.New("relay: the database is relayed under another name")

// foreign refuses a marker of another outbox. Those of earlier versions have no schema.
func (o *opener) foreign(subject string, m marker) error {
	if m.Cluster == o.cluster || strings.HasPrefix(o.cluster, m.Cluster+"/") {
		return nil
	}
	return fmt.Errorf("%w: %s stands at %s of %s (node %s), this is %s (cluster, database, oid, schema). Two outboxes need two names of sources. If its tables were restored here on purpose, remove the position with: nats stream purge %s --subject '%s'",
		errForeign, subject, m.Position, m.Cluster, m.Node, o.cluster, o.stream.Name, subject)
}

// alone refuses a source under whose name another outbox is relayed, in whatever mode: they would share leases and
// positions.
func (o *opener) alone(ctx context.Context) error {
	stream, err := o.js.Stream(ctx, o.stream.Name)
	if err != nil {
		return fmt.Errorf("relay: cannot open stream %s: %w", o.stream.Name, err)
	}
	info, err := streams.LeadersInfo(ctx, stream, jetstream.WithSubjectFilter(o.stream.Prefix+"-pos."+o.source+".>"))
	if err != nil {
		return fmt.Errorf("relay: cannot look for positions of %s: %w", o.source, err)
	}
	for subject := range info.State.Subjects {
		m, from, err := o.last(ctx, subject)
		if err != nil {
			return err
		}
		if from > 0 {
			if err := o.foreign(subject, m); err != nil {
				return permanent(err)
			}
		}
	}
	return nil
}

// open takes the shard over: it writes a marker on top of the last one, from which on nothing of an earlier session can
// be stored any more, and then reads what that session stored after its own last marker. fallback is the position to go
// on from when the stream has no marker.
func (o *opener) open(ctx context.Context, shard int, fallback position) (*session, error) {
	s := &session{o: o, shard: shard, id: nuid.Next(), subject: o.subject(shard), pos: fallback}
	s.subjectSlot = []string{s.subject}
	before, from, err := o.last(ctx, s.subject)
	if err != nil {
		return nil, err
	}
	if from > 0 {
		if err := o.foreign(s.subject, before); err != nil {
			return nil, err
		}
		if s.pos, err = parsePosition(before.Position); err != nil {
			return nil, fmt.Errorf("relay: cannot read the position %q of shard %d: %w", before.Position, shard, err)
		}
	}
	s.guard(from)
	s.before, s.from = before, from
	kept, err := o.generation(ctx, shard)
	if err != nil {
		return nil, err
	}
	if s.generation = max(kept, before.Generation); kept < before.Generation && o.pool != nil {
		s.back, s.pos, before.Since, before.Clean = true, fallback, 1, false
	}
	switch {
	case before.Since > 0:
		s.since = before.Since
	case from > 0:
		s.since = from
	default:
		first, err := o.first(ctx)
		if err != nil {
			return nil, err
		}
		if s.known = first; !first { // positions were purged, or have expired
			s.since = 1 // was a position
		}
	}
	if _, err := o.pub.single(ctx, nil, []*session{s}); err != nil {
		return nil, fmt.Errorf("relay: cannot take shard %d: %w", shard, err)
	}
	if err := o.enter(ctx, s, kept); err != nil {
		return nil, err
	}
	if from == 0 { // two that begin at the same time both find nobody, until they have written where they stand
		if err := o.alone(ctx); err != nil {
			return nil, err
		}
	}
	if !before.Clean && !s.known {
		if err := o.readBack(ctx, s); err != nil {
			return nil, fmt.Errorf("relay: cannot read back shard %d: %w", shard, err)
		}
	}
	s.known = true
	return s, nil
}

// last is the last marker under the subject and its sequence; 0 for none.
func (o *opener) last(ctx context.Context, subject string) (marker, uint64, error) {
	var m marker
	stream, err := o.js.Stream(ctx, o.stream.Name)
	if err != nil {
		return m, 0, fmt.Errorf("relay: cannot open stream %s: %w", o.stream.Name, err)
	}
	raw, err := stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return m, 0, nil
	}
	if err != nil {
		return m, 0, fmt.Errorf("relay: cannot read the position under %s: %w", subject, err)
	}
	if err := json.Unmarshal(raw.Data, &m); err != nil {
		return m, 0, fmt.Errorf("relay: cannot read the position under %s: %w", subject, err)
	}
	return m, raw.Sequence, nil
}

func (s *session) guard(seq uint64) {
	s.guarded, s.guardText = seq, []string{strconv.FormatUint(seq, 10)}
}

func (s *session) guardSlot() []string { return s.guardText }

// due says that a marker should be written, so that the next session has little to read back.
func (s *session) due(now time.Time, maxAge time.Duration) bool {
	if s.rows >= markRows {
		return true
	}
	since := now.Sub(s.written)
	return s.pos > s.last && since > markAfter || maxAge > 0 && since > maxAge/refresh
}

// settled says that all that earlier sessions stored is accounted for: the position has passed it. What of it was parked was taken
// out of the database when the shard was opened. Until then every marker says from where it has to be read back.
func (s *session) settled() bool {
	return s.known && s.seenTo <= s.pos
}

// message is the marker of now.
func (s *session) message() *nats.Msg {
	s.last = s.pos
	m := marker{Session: s.id, Node: s.o.node, Position: s.pos.String(), Since: s.since, Generation: s.generation, Cluster: s.o.cluster, At: s.o.clock().UTC()}
	if s.settled() {
		m.Since, m.Clean = 0, s.ending
	}
	data, _ := json.Marshal(m) // strings and a time
	return &nats.Msg{Subject: s.subject, Data: data, Header: nats.Header{nats.MsgRollup: {nats.MsgRollupSubject}, HeaderSource: {s.o.source}, streams.HeaderActor: {s.o.node}}}
}

// marked notes that the session's marker was stored.
func (s *session) marked(seq uint64) {
	s.guard(seq)
	s.rows, s.written = 0, s.o.clock()
}
