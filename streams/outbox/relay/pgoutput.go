package relay

import (
	"encoding/binary"
	"encoding/hex"
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

// decoder reads pgoutput. A message names its table by a number that an earlier one explains.
type decoder struct {
	prefix  string // of emitted messages that are events
	table   bool   // events are rows of outbox_log
	tables  map[uint32][]string
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

func (r *reading) u16() int {
	if b := r.bytes(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
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
	case 'R':
		d.relation(r)
	case 'I':
		if d.table {
			c = d.insert(r)
		}
	case 'M':
		transactional := r.u8() == 1
		r.u64()
		prefix := r.text()
		content := r.bytes(int(r.u32()))
		if !d.table && transactional && prefix == d.prefix && !r.short {
			c = d.message(content)
		}
	}
	if r.short {
		return change{}, errShort
	}
	return c, nil
}

func (d *decoder) relation(r *reading) {
	id := r.u32()
	r.text()
	r.text()
	r.u8()
	columns := make([]string, r.u16())
	for i := range columns {
		r.u8()
		columns[i] = r.text()
		r.u32()
		r.u32()
	}
	if d.tables == nil {
		d.tables = map[uint32][]string{}
	}
	d.tables[id] = columns
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
	m.parse(time.RFC3339Nano, s)
	return nil
}

func (m *moment) parse(layout, s string) {
	t, err := time.Parse(layout, s)
	switch {
	case err == nil:
		m.Time = t
	case s == "infinity":
		m.Time = never
	default:
		m.Time = time.Time{}
	}
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
			r.NotBefore, r.later = e.NotBefore.Time, e.NotBefore.After(time.Now())
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

// insert reads a row of outbox_log in text.
func (d *decoder) insert(r *reading) change {
	columns := d.tables[r.u32()]
	r.u8() // N, the new row
	n := r.u16()
	w := &row{}
	e := envelope{Headers: json.RawMessage("{}")}
	for i := range n {
		var value []byte
		switch r.u8() {
		case 't':
			value = r.bytes(int(r.u32()))
		default:
			continue // null, or unchanged, which an insert has not
		}
		if i >= len(columns) || r.short {
			continue
		}
		if err := e.column(columns[i], value, w); err != nil {
			d.unknown++
			return change{kind: '?'}
		}
	}
	if e.EventID == uuid.Nil {
		return change{} // another table of the publication
	}
	pos := d.place()
	e.Pos = pos.String()
	line, _ := json.Marshal(e) // of text that was JSON or is a string
	if err := w.emitted(append(append(line, '\n'), w.Payload...), pos); err != nil {
		d.unknown++
		return change{kind: '?'}
	}
	return change{kind: 'r', commit: d.commit, row: w}
}

// column puts the text of a column of outbox_log into the envelope, or the payload into the row.
func (e *envelope) column(name string, value []byte, w *row) (err error) {
	s := string(value)
	const stamp = "2006-01-02 15:04:05.999999-07"
	switch name {
	case "event_id":
		e.EventID, err = uuid.Parse(s)
	case "occurred_at":
		e.OccurredAt.parse(stamp, s)
	case "created_at":
		e.CreatedAt.parse(stamp, s)
	case "aggregate_type":
		e.AggregateType = s
	case "aggregate_id":
		e.AggregateID = s
	case "event_type":
		e.EventType = s
	case "content_type":
		e.ContentType = s
	case "headers":
		e.Headers = json.RawMessage(s)
	case "not_before":
		e.NotBefore = &moment{}
		e.NotBefore.parse(stamp, s)
	case "payload":
		w.Payload, err = hex.DecodeString(trimHex(s))
	}
	return err
}

func trimHex(s string) string {
	if len(s) >= 2 && s[:2] == `\x` {
		return s[2:]
	}
	return s
}
