package relay

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bcc94042/instar/streams/outbox"
)

// change is what the decoder takes from a message of pgoutput, version 1. Transactions come whole, in the order of
// their commits, with the position of the commit in front.
type change struct {
	kind   byte // B begin, C commit, r a row, 0 nothing of interest
	commit uint64
	end    uint64 // C: where the next transaction begins at the earliest
	row    *row
}

// decoder reads pgoutput of a publication without tables: transactions and what was emitted in them.
type decoder struct {
	prefix  string // of emitted messages that are events
	commit  uint64
	nth     uint32
	unknown int // emitted messages that nobody understands
}

var errShort = errors.New("relay: a message of the WAL is cut short")

// reading takes a message apart; after a cut every part is empty and short is set.
type reading struct {
	data  []byte
	short bool
}

func (r *reading) bytes(n int) []byte {
	if n < 0 || n > len(r.data) {
		r.short, r.data = true, nil
		return nil
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *reading) u8() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reading) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reading) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reading) text() string {
	for i, c := range r.data {
		if c == 0 {
			s := string(r.data[:i])
			r.data = r.data[i+1:]
			return s
		}
	}
	r.short, r.data = true, nil
	return ""
}

// decode reads one message. The row it returns owns its memory.
func (d *decoder) decode(data []byte) (change, error) {
	r := &reading{data: data}
	var c change
	switch kind := r.u8(); kind {
	case 'B':
		d.commit, d.nth = r.u64(), 0
		c = change{kind: 'B', commit: d.commit}
	case 'C':
		r.u8()
		c = change{kind: 'C', commit: r.u64(), end: r.u64()}
	case 'M':
		transactional := r.u8() == 1
		r.u64()
		prefix := r.text()
		content := r.bytes(int(r.u32()))
		if transactional && prefix == d.prefix && !r.short {
			c = d.message(content)
		}
	}
	if r.short {
		return change{}, errShort
	}
	return c, nil
}

// place is the position of the next event.
func (d *decoder) place() position {
	d.nth++
	return position{at: d.commit, nth: d.nth, lsn: true}
}

func (d *decoder) message(content []byte) change {
	w := &row{}
	pos := d.place()
	if err := w.emitted(append([]byte(nil), content...), pos); err != nil {
		d.unknown++
		return change{kind: '?'}
	}
	return change{kind: 'r', commit: d.commit, row: w}
}

// envelope is the first line of an emitted message, which the payload follows.
type envelope struct {
	EventID       uuid.UUID       `json:"event_id"`
	OccurredAt    moment          `json:"occurred_at"`
	AggregateType string          `json:"aggregate_type"`
	AggregateID   string          `json:"aggregate_id"`
	EventType     string          `json:"event_type"`
	ContentType   string          `json:"content_type"`
	Headers       json.RawMessage `json:"headers"`
	NotBefore     *moment         `json:"not_before"`
	Shard         int             `json:"shard"`
	CreatedAt     moment          `json:"created_at"`
	Number        int64           `json:"number,omitempty"`
	Pos           string          `json:"pos,omitempty"` // of one that is parked
}

// moment is a time as Postgres writes it. What Go or JSON have no time for, such as one before Christ, is the zero time, and
// infinity is never: the time is less than the event.
type moment struct{ time.Time }

var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

func (m *moment) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	switch {
	case err == nil:
		m.Time = t
	case s == "infinity":
		m.Time = never
	default:
		m.Time = time.Time{}
	}
	return nil
}

// emitted fills the row from an emitted message. One that was parked brings its position along.
func (r *row) emitted(message []byte, pos position) error {
	for i, c := range message {
		if c != '\n' {
			continue
		}
		var e envelope
		if err := json.Unmarshal(message[:i], &e); err != nil {
			return fmt.Errorf("cannot read an emitted message: %w", err)
		}
		if e.Pos != "" {
			var err error
			if pos, err = parsePosition(e.Pos); err != nil {
				return err
			}
		} else {
			e.Pos = pos.String()
		}
		r.pos, r.ID, r.OccurredAt, r.AggregateType, r.AggregateID, r.EventType = pos, e.EventID, e.OccurredAt.Time, e.AggregateType, e.AggregateID, e.EventType
		if r.OccurredAt.IsZero() || r.OccurredAt.Equal(never) {
			r.OccurredAt = e.CreatedAt.Time
		}
		r.ContentType, r.Headers, r.Payload = e.ContentType, outbox.ReadHeaders(e.Headers), message[i+1:]
		if e.NotBefore != nil {
			r.NotBefore, r.later = e.NotBefore.Time, e.NotBefore.After(e.CreatedAt.Time) // the database knows whether the time has come
		}
		r.line = &e
		return nil
	}
	return errors.New("cannot read an emitted message: no line of JSON in front")
}

// parkable is the row as it is kept while it is parked: as it was emitted, and where.
func (r *row) parkable() []byte {
	line, _ := json.Marshal(r.line) // was JSON
	return append(append(line, '\n'), r.Payload...)
}
