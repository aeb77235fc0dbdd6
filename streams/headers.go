package streams

// Headers and ids of messages: what those who publish write, and those who consume read. Expect, Keep and Schedule make a write conditional, bounded in its life, or delayed;
// CloudEvent writes the attributes of an event; CommandID scopes the id of a sender to one entity, and VersionOf, NumberOf and RefusedOf read back which version or command an
// event belongs to.

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Headers of commands and answers. No other Nats-* header of a caller is passed on.
const (
	HeaderID       = "Nats-Msg-Id"            // the idempotency key, scoped to the entity (see CommandID)
	HeaderActor    = "Instar-Actor"           // who asks
	HeaderReason   = "Instar-Reason"          // why
	HeaderExpect   = "Instar-Expect-Revision" // refused unless the entity is as expected (see Expected)
	HeaderFence    = "Instar-Fence"           // of a report: the claim that it was made under; refused when a later one is known
	HeaderReply    = "Instar-Reply"           // where the answer goes
	HeaderWait     = "Instar-Wait"            // how long the sender waits for the outcome, such as 30s; it changes nothing
	HeaderLookup   = "Instar-Lookup"          // the same command again, whose id the stream has seen: it is applied only if it never was
	HeaderReplayed = "Instar-Replayed"        // of an answer: it is that of an earlier command under the same key
	HeaderLife     = "Instar-Life"            // of a lease: how long it lives without being renewed, such as 15s
	HeaderBirth    = "Instar-Birth"           // of an event: which life of its entity it belongs to, random
	HeaderAttempt  = "Instar-Attempt"         // of a log line: the attempt that wrote it
	HeaderRoute    = "Instar-Route"           // of an effect that can have a queue of its own: which; "-" is that of all
	HeaderTrace    = "traceparent"            // W3C trace context; nats.go header look-ups are case-sensitive
)

// Headers of JetStream that are set by hand.
const (
	headerTTL           = "Nats-TTL"
	headerExpect        = "Nats-Expected-Last-Subject-Sequence"
	headerExpectSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerSchedule      = "Nats-Schedule"
	headerTarget        = "Nats-Schedule-Target"
	scheduleForm        = "@at " + time.RFC3339Nano
)

// Expect makes the write conditional: it is refused with ErrConflict of package publish unless the last message under the message's own subject has that sequence. 0 means that there is none.
func Expect(m *nats.Msg, revision uint64) { m.Header[headerExpect] = []string{utoa(revision)} }

// ExpectUnder makes the write conditional on the last message under a subject filter.
func ExpectUnder(m *nats.Msg, filter string, sequence uint64) {
	m.Header[headerExpect] = []string{utoa(sequence)}
	m.Header[headerExpectSubject] = []string{filter}
}

// ExpectedUnder is the filter that [ExpectUnder] has set, or empty.
func ExpectedUnder(m *nats.Msg) string {
	if filter := m.Header[headerExpectSubject]; len(filter) > 0 {
		return filter[0]
	}
	return ""
}

// Unexpect takes back [Expect] and [ExpectUnder]: the write is unconditional.
func Unexpect(m *nats.Msg) {
	delete(m.Header, headerExpect)
	delete(m.Header, headerExpectSubject)
}

// Previous is the sequence of the message that one of a chain follows, as the stream has checked on storing it; 0 for none. In an atomic batch the messages of a chain are adjacent, and only the first one carries it.
func Previous(h nats.Header, seq uint64) uint64 {
	if before, err := strconv.ParseUint(Header(h, headerExpect), 10, 64); err == nil {
		return before
	}
	return seq - 1
}

// Keep bounds the life of a message; whole seconds, at least one.
func Keep(m *nats.Msg, ttl time.Duration) {
	m.Header[headerTTL] = []string{utoa(uint64(max(ttl/time.Second, 1))) + "s"}
}

// Schedule makes the message fire at the time, as a message to target with the same body. The time is written with its nanoseconds: nats.go's own helper truncates to the second, and the message fires early.
func Schedule(m *nats.Msg, at time.Time, target string) {
	m.Header[headerSchedule] = []string{at.UTC().Format(scheduleForm)}
	m.Header[headerTarget] = []string{target}
}

// ScheduledAt is when a message with these headers fires; the zero time where [Schedule] has not written it.
func ScheduledAt(h nats.Header) time.Time {
	at, _ := time.Parse(scheduleForm, Header(h, headerSchedule))
	return at
}

// Scheduled reports whether the message fires later; see [Schedule].
func Scheduled(m *nats.Msg) bool { return len(m.Header[headerSchedule]) > 0 }

// CloudEvent writes the attributes of CloudEvents 1.0 in binary mode, in exact lower case (ADR-4 preserves case, and nats.go reads it case-sensitively). The data is JSON.
func CloudEvent(m *nats.Msg, id, source, typ, subject string, at time.Time) {
	m.Header["ce-specversion"] = []string{"1.0"}
	m.Header["ce-id"] = []string{id}
	m.Header["ce-source"] = []string{source}
	m.Header["ce-type"] = []string{typ}
	m.Header["ce-subject"] = []string{subject}
	m.Header["ce-time"] = []string{at.UTC().Format(time.RFC3339Nano)}
	m.Header["ce-datacontenttype"] = []string{"application/json"}
	m.Header["content-type"] = []string{"application/json"} // by which SDKs decode the data
	m.Header[HeaderID] = []string{id}
}

// Header reads a header whatever the case it was written in.
func Header(h nats.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	for k, v := range h {
		if len(v) > 0 && strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}

// maxWait bounds what a sender may say about its wait.
const maxWait = 24 * time.Hour

// ParseWait reads how long a sender waits: a duration such as 30s, or seconds. ok is false for anything else, and for a
// negative one; more than 24 h is 24 h.
func ParseWait(text string) (wait time.Duration, ok bool) {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxWait), true
	}
	wait, err := time.ParseDuration(text)
	return min(wait, maxWait), err == nil && wait >= 0
}

// WaitOf is how long the sender of a command waits; 0 if it does not say, or not in a way that can be read.
func WaitOf(h nats.Header) time.Duration {
	wait, ok := ParseWait(Header(h, HeaderWait))
	if !ok {
		return 0
	}
	return wait
}

// CommandID scopes a caller's idempotency key to an entity, so that two callers with the same key on two entities do
// not meet.
func CommandID(machine, key, id string) string { return machine + "/" + key + "/" + id }

// madeUp begins the ids of commands that were sent without a key. The doors refuse it in the keys of senders.
const madeUp = "~"

// MadeUpID is the id of a command that was sent without a key.
func MadeUpID(unique string) string { return madeUp + unique }

// MadeUp reports whether the id of a command is no key of its sender: its answer is not kept.
func MadeUp(id string) bool { return strings.HasPrefix(id, madeUp) }

// AnswerKey is the key of the answer to a command in [IdempotencyBucket]. A key of a sender may hold anything, so it is
// hashed.
func AnswerKey(machine, key, id string) string {
	sum := sha256.Sum256([]byte(id))
	return machine + "." + key + "." + base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16])
}

// Replayed reports whether an answer is that of an earlier command under the same key.
func Replayed(answer *nats.Msg) bool { return Header(answer.Header, HeaderReplayed) != "" }

// VersionOf is the entity's version that a message with the id belongs to, if the id says one.
func VersionOf(machine, key, id string) (uint64, bool) {
	version, _, ok := strings.Cut(UnscopeID(machine, key, id), "/")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(version, 10, 53) // what JSON can say
	return v, err == nil
}

// NumberOf is the position of an event with the id among those of its entity: the version, and the place among the events of that
// version. It is not ok for an event that belongs to no version, such as that of a refusal.
func NumberOf(machine, key, id string) (version, n uint64, ok bool) {
	version, ok = VersionOf(machine, key, id)
	if ok {
		_, place, _ := strings.Cut(UnscopeID(machine, key, id), "/")
		var err error
		n, err = strconv.ParseUint(place, 10, 64)
		ok = err == nil
	}
	return version, n, ok
}

// RefusedOf returns which command an event with the id reports as refused, if it is the event of a refusal: its sequence and its time in the stream. Sequences are given out
// again where a stream has lost its last messages.
func RefusedOf(machine, key, id string) (seq uint64, at time.Time, ok bool) {
	rest, ok := strings.CutPrefix(UnscopeID(machine, key, id), "refused/")
	if !ok {
		return 0, time.Time{}, false
	}
	first, rest, _ := strings.Cut(rest, "/")
	seq, err := strconv.ParseUint(first, 10, 64)
	if second, _, timed := strings.Cut(rest, "/"); timed && err == nil {
		var nanos int64
		nanos, err = strconv.ParseInt(second, 10, 64)
		at = time.Unix(0, nanos)
	}
	return seq, at, err == nil
}

// UnscopeID is the caller's part of a scoped id.
func UnscopeID(machine, key, id string) string {
	return strings.TrimPrefix(id, machine+"/"+key+"/")
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }
