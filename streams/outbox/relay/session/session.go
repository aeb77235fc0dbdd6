package session

// Sessions of shards, and their markers. Open, called by log/open.go and claim/open.go when the lease of a shard is held, reads the last marker, writes the next one, by which
// all earlier sessions end, and reads back what these stored after their last one (readback.go). Package sink guards each message by Guard, stores what Marker makes, and reports
// its sequence to Marked.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// marker is the body of the message that says how far a shard has come and who relays it. The last marker of a shard decides both.
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
	MarkAfter = 5 * time.Second

	markRows = 4096
	refresh  = 8 // the part of the stream's MaxAge after which one is written again, so that it never expires under a relay
)

// Opener opens shards of one source.
type Opener struct {
	JS      jetstream.JetStream
	Pub     *sink.Publisher
	Stream  sink.Stream
	Source  string
	Renamed string // what the source was called before
	Mode    string
	Node    string
	Cluster string        // that positions belong to
	Pool    *pgxpool.Pool // nil: nothing is known of earlier relays

	back   *readBack // what was read for the shards that are being opened
	fresh  *bool     // this is the first relay of the source; nil: it was not asked
	looked int       // how many messages were read back
}

// Session is a shard that this relay has opened: it alone can write to it until somebody else opens it.
type Session struct {
	Shard   int
	Pos     sink.Position     // every row up to here is stored or parked
	Rows    int               // stored since the last marker
	Seen    map[string]Stored // by key, rows that earlier sessions stored and did not account for
	SeenTo  sink.Position     // the last of them, where they have an order
	Back    bool              // the database was set back since the last marker
	Mended  bool              // the stream was set back, and what it lost is published again: the database knows a later marker
	From    uint64            // sequence of the marker before its own; 0 for none
	Since   uint64            // from where the next session has to read back until this one is settled
	Guarded uint64            // sequence of its last marker

	o          *Opener
	id         string
	known      bool          // what earlier sessions stored
	written    time.Time     // of the last marker
	last       sink.Position // in the last marker
	generation uint64        // of the last marker, in the database
	before     marker        // the one before its own
	ending     bool          // the next marker is the last one
	noted      uint64        // the marker that the database knows

	subject          string
	subjectS, guardS []string // values of headers
}

func (o *Opener) subject(shard int) string {
	return o.Stream.Markers(o.Source + "." + o.Mode + "." + strconv.Itoa(shard))
}

// ErrForeign says that a position belongs to another database, or to another schema of it.
var ErrForeign = errors.New("the position in the stream belongs to another outbox")

// foreign refuses a marker of another outbox. Those of earlier versions have no schema.
func (o *Opener) foreign(subject string, m marker) error {
	if m.Cluster == o.Cluster || strings.HasPrefix(o.Cluster, m.Cluster+"/") {
		return nil
	}
	return fmt.Errorf("%w: %s stands at %s of %s (node %s), this is %s (cluster, database, oid, schema). Two outboxes need two names of sources. If its tables were restored or created here on purpose, remove the positions with: nats stream purge %s --subject '%s'",
		ErrForeign, subject, m.Position, m.Cluster, m.Node, o.Cluster, o.Stream.Name, o.Stream.Markers(o.Source+".>"))
}

// Alone fails when another outbox is relayed under the name of this source, in whatever mode: they would share leases and positions.
func (o *Opener) Alone(ctx context.Context) error {
	stream, err := o.JS.Stream(ctx, o.Stream.Name)
	if err != nil {
		return fmt.Errorf("relay: cannot open stream %s: %w", o.Stream.Name, err)
	}
	info, err := streams.LeadersInfo(ctx, stream, jetstream.WithSubjectFilter(o.Stream.Markers(o.Source+".>")))
	if err != nil {
		return fmt.Errorf("relay: cannot look for positions of %s: %w", o.Source, err)
	}
	for subject := range info.State.Subjects {
		m, from, err := o.last(ctx, subject)
		if err != nil {
			return err
		}
		if from > 0 {
			if err := o.foreign(subject, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// Open takes the shard over: it writes a marker on top of the last one, from which on nothing of an earlier session can
// be stored any more, and then reads what that session stored after its own last marker. fallback is the position to go
// on from when the stream has no marker.
func (o *Opener) Open(ctx context.Context, shard int, fallback sink.Position) (*Session, error) {
	s := &Session{o: o, Shard: shard, id: nuid.Next(), subject: o.subject(shard), Pos: fallback}
	s.subjectS = []string{s.subject}
	before, from, err := o.last(ctx, s.subject)
	if err != nil {
		return nil, err
	}
	if from > 0 {
		if err := o.foreign(s.subject, before); err != nil {
			return nil, err
		}
		if s.Pos, err = sink.ParsePosition(before.Position); err != nil {
			return nil, fmt.Errorf("relay: cannot read the position %q of shard %d: %w", before.Position, shard, err)
		}
	}
	s.guard(from)
	s.before, s.From = before, from
	kept, err := o.generation(ctx, shard)
	if err != nil {
		return nil, err
	}
	if s.generation = max(kept, before.Generation); kept < before.Generation && o.Pool != nil {
		s.Back, s.Pos, before.Since, before.Clean = true, fallback, 1, false
	}
	switch {
	case before.Since > 0:
		s.Since = before.Since
	case from > 0:
		s.Since = from
	default:
		first, err := o.first(ctx)
		if err != nil {
			return nil, err
		}
		if s.known = first; !first { // positions were purged, or have expired
			s.Since = 1 // was a position
		}
	}
	if err := o.Pub.Mark(ctx, s); err != nil {
		return nil, fmt.Errorf("relay: cannot take shard %d: %w", shard, err)
	}
	if err := o.enter(ctx, s, kept); err != nil {
		return nil, err
	}
	if from == 0 { // two that begin at the same time do not find each other until both have written a position
		if err := o.Alone(ctx); err != nil {
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
func (o *Opener) last(ctx context.Context, subject string) (marker, uint64, error) {
	var m marker
	stream, err := o.JS.Stream(ctx, o.Stream.Name)
	if err != nil {
		return m, 0, fmt.Errorf("relay: cannot open stream %s: %w", o.Stream.Name, err)
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

func (s *Session) guard(seq uint64) {
	s.Guarded, s.guardS = seq, []string{strconv.FormatUint(seq, 10)}
}

// Guard is what a message of the session expects.
func (s *Session) Guard() (subject, sequence []string) { return s.subjectS, s.guardS }

// Due reports whether a marker should be written, so that the next session has little to read back.
func (s *Session) Due(now time.Time, maxAge time.Duration) bool {
	if s.Rows >= markRows {
		return true
	}
	since := now.Sub(s.written)
	return s.Pos > s.last && since > MarkAfter || maxAge > 0 && since > maxAge/refresh
}

// settled reports whether everything that earlier sessions stored is accounted for: the position has passed it, and what of it was parked was removed from the database when the
// shard was opened. Until then every marker says from where to read back.
func (s *Session) settled() bool {
	return s.known && s.SeenTo <= s.Pos
}

// Marker is the marker of now.
func (s *Session) Marker() *nats.Msg {
	s.last = s.Pos
	m := marker{Session: s.id, Node: s.o.Node, Position: s.Pos.String(), Since: s.Since, Generation: s.generation, Cluster: s.o.Cluster, At: time.Now().UTC()}
	if s.settled() {
		m.Since, m.Clean = 0, s.ending
	}
	data, _ := json.Marshal(m) // strings and a time
	return &nats.Msg{Subject: s.subject, Data: data, Header: nats.Header{nats.MsgRollup: {nats.MsgRollupSubject}, sink.HeaderSource: {s.o.Source}, streams.HeaderActor: {s.o.Node}}}
}

// Marked records that the session's marker was stored.
func (s *Session) Marked(seq uint64) {
	s.guard(seq)
	s.Rows, s.written = 0, time.Now()
}

// End makes the next marker the last one of the session: it says that there is nothing to read back, where that is so.
func (s *Session) End() { s.ending = true }

// TakenBy is the node that has opened the shard since, if one has.
func (s *Session) TakenBy(ctx context.Context) (node string, taken bool) {
	m, _, err := s.o.last(ctx, s.subject)
	return m.Node, err == nil && m.Session != s.id
}
