package sink

// From a row to a NATS message. message (publish.go) calls encode: prefix, aggregate and event type become the subject, and headers carry the CloudEvent, the shard, the position
// and those headers of the row that may pass; structured.go writes the body in structured mode. fits, called before a row is published, refuses what can never be stored, such as
// names that make no subject.

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
)

// Headers that a relay adds to those of CloudEvents.
const (
	HeaderSource   = "Outbox-Source"   // name of the database
	HeaderShard    = "Outbox-Shard"    // number of the part of its aggregates
	HeaderPosition = "Outbox-Pos"      // of the row: its sequence number; its id in mode claim
	HeaderAttempts = "Outbox-Attempts" // tries that it took, when it was more than one
)

// maxHeaders is the server's limit of all headers of a message.
const maxHeaders = 64<<10 - 1

// Bounds of a token of a subject, and of a whole event type.
const (
	maxName = 128
	maxType = 256
)

// encoder writes rows into one message that is used again and again: a publish copies it before it returns.
type encoder struct {
	prefix     string
	limit      int
	structured bool // events are published in structured mode
	msg        nats.Msg
	id         string
	fixed      map[string][]string // slots of headers that every event has
	binary     []string            // those that only an event in binary mode has
	bare       bool                // they are not in msg
	source     string              // of CloudEvents
	body       []byte              // of an event in structured mode
	extra      []string            // headers of the row that is in msg
	buf        []byte
}

func newEncoder(prefix, source string, limit int) *encoder {
	e := &encoder{prefix: prefix, limit: limit, fixed: map[string][]string{}, msg: nats.Msg{Header: nats.Header{}}}
	for _, name := range []string{"ce-id", "ce-type", "ce-subject", "ce-time", "ce-specversion", "ce-source", "ce-datacontenttype", "content-type", nats.MsgIdHdr, HeaderShard, HeaderPosition} {
		slot := make([]string, 1)
		e.fixed[name], e.msg.Header[name] = slot, slot
		if strings.HasPrefix(name, "ce-") {
			e.binary = append(e.binary, name)
		}
	}
	e.source = "/outbox/" + source
	e.set("ce-specversion", "1.0")
	e.set("ce-source", e.source)
	e.msg.Header[HeaderSource] = []string{source}
	return e
}

// fits refuses what can never be published.
func (e *encoder) fits(r *Row) error {
	if r.Gone {
		return errors.New("the row is gone from outbox_log")
	}
	if err := check(r); err != nil {
		return err
	}
	size := e.size(r)
	if size > maxHeaders {
		return fmt.Errorf("headers of %d bytes are more than the %d that a message may have", size, maxHeaders)
	}
	if size+len(r.Payload) > e.limit {
		return fmt.Errorf("a payload of %d bytes with headers of %d is more than the %d that the stream takes", len(r.Payload), size, e.limit)
	}
	return nil
}

// size is how many bytes the headers of a row have at most.
func (e *encoder) size(r *Row) int {
	const ours = 1200 // of the fixed headers and those of guard and batch, at most, besides names
	size := ours + 2*len(r.EventType) + 2*len(r.AggregateID) + 2*len(r.AggregateType) + 2*len(r.ContentType)
	for name, value := range r.Headers {
		size += len(name) + len(value) + 4
	}
	return size
}

// encode puts a row that fits into the encoder's message.
func (e *encoder) encode(r *Row) *nats.Msg {
	for _, name := range e.extra {
		delete(e.msg.Header, name)
	}
	e.extra = e.extra[:0]
	e.id = r.ID.String()
	e.buf = append(append(append(e.buf[:0], e.prefix...), '.'), r.AggregateType...)
	e.buf = append(append(e.buf, '.'), r.AggregateID...)
	e.buf = append(append(e.buf, '.'), r.EventType...)
	e.msg.Subject = string(e.buf)
	e.msg.Data = r.Payload
	e.set("ce-id", e.id)
	e.set(nats.MsgIdHdr, e.id)
	if r.Redrives > 0 { // so that it is not taken for a duplicate of an earlier life
		e.set(nats.MsgIdHdr, e.id+"."+strconv.Itoa(r.Redrives))
	}
	e.set("ce-type", r.EventType)
	e.buf = append(append(append(e.buf[:0], r.AggregateType...), '/'), r.AggregateID...)
	e.set("ce-subject", string(e.buf))
	e.buf = r.OccurredAt.UTC().AppendFormat(e.buf[:0], time.RFC3339Nano)
	e.set("ce-time", string(e.buf))
	content := cmp.Or(r.ContentType, "application/json")
	e.set("ce-datacontenttype", content) // the attribute of CloudEvents
	e.set("content-type", content)       // what every other reader looks for, and what marks structured mode
	e.mode(outbox.Structured(content))
	if e.structured && !outbox.Structured(content) {
		e.wrap(r, content)
	}
	e.set(HeaderShard, strconv.Itoa(r.Shard))
	e.set(HeaderPosition, r.Key())
	for name, value := range r.Headers {
		if !passes(name) {
			continue
		}
		if strings.EqualFold(name, streams.HeaderTrace) {
			name = streams.HeaderTrace // others look for it in this case
		}
		e.msg.Header[name] = []string{value}
		e.extra = append(e.extra, name)
	}
	if r.Attempts > 1 {
		e.msg.Header[HeaderAttempts] = []string{strconv.Itoa(r.Attempts)}
		e.extra = append(e.extra, HeaderAttempts)
	}
	return &e.msg
}

// mode puts the headers of an event in binary mode into the message, or leaves them out: whoever finds them there does not parse the payload.
func (e *encoder) mode(structured bool) {
	if structured == e.bare {
		return
	}
	e.bare = structured
	for _, name := range e.binary {
		if structured {
			delete(e.msg.Header, name)
		} else {
			e.msg.Header[name] = e.fixed[name]
		}
	}
}

func (e *encoder) set(name, value string) { e.fixed[name][0] = value }

// passes reports whether a row's header becomes one of the message. Those that the server or the relay give a meaning to
// are dropped: a row must not be able to switch off a guard or pretend to be another event.
func passes(name string) bool {
	if len(name) == 0 || len(name) > maxName {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || c == ':' {
			return false
		}
	}
	for _, ours := range []string{"nats-", "ce-", "outbox-"} {
		if len(name) >= len(ours) && strings.EqualFold(name[:len(ours)], ours) {
			return false
		}
	}
	return !strings.EqualFold(name, "content-type")
}

// check refuses a row whose names do not make a subject.
func check(r *Row) error {
	if err := token("aggregate type", r.AggregateType); err != nil {
		return err
	}
	if err := token("aggregate id", r.AggregateID); err != nil {
		return err
	}
	if len(r.EventType) > maxType {
		return fmt.Errorf("event type of %d bytes is longer than %d", len(r.EventType), maxType)
	}
	for t := range strings.SplitSeq(r.EventType, ".") {
		if err := token("event type", t); err != nil {
			return err
		}
	}
	return nil
}

func token(what, s string) error {
	if s == "" || len(s) > maxName {
		return fmt.Errorf("%s has %d characters, 1 to %d make a token of a subject", what, len(s), maxName)
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			continue
		}
		return fmt.Errorf("%s %q may hold letters, digits, - and _ to make a subject", what, s)
	}
	return nil
}
