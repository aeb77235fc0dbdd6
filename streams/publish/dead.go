package publish

// Dead letters: messages that were given up, with the reason. The engine (engine/deadletters.go) and the effect workers (effects/workers.go) build them with Message and publish
// them to DEAD_LETTERS. List, Get and Redrive serve operators (api/admin/deadletters.go): Redrive sends the original message to where it came from, and removes the letter.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Headers of a dead letter.
const (
	headerDeadReason  = "Instar-Dead-Reason"
	headerDeadSubject = "Instar-Dead-Subject"
	headerDeadTries   = "Instar-Dead-Tries"
	headerDeadFrom    = "Instar-Dead-Consumer"
	headerDeadMachine = "Instar-Dead-Machine"
	headerDeadKey     = "Instar-Dead-Key"

	headerDeadTruncated = "Instar-Dead-Truncated" // bytes of the whole body, where a letter holds only the beginning of that or of the subject
	headerDeadID        = "Instar-Dead-Id"        // of the message
	headerDeadUntaken   = "Instar-Dead-Untaken"   // the id is a key that was not used up
)

// kept are the headers of a message that its letter keeps, and that redrive puts back; HeaderExpect only where the command was not taken, see Redrive.
var kept = []string{streams.HeaderActor, streams.HeaderReason, streams.HeaderTrace, streams.HeaderExpect}

// A letter must fit where the message did not have to: into 1 MiB with the reason and the other headers.
const (
	maxLetter = 1<<20 - 32<<10
	maxHeader = 2 << 10

	maxDeadSubject = 8 << 10 // a server takes 4 KiB, where nothing else is set: what is longer was never stored, and nothing puts it back
)

// short bounds the value of a header.
func short(s string) string {
	if len(s) <= maxHeader {
		return s
	}
	return strings.ToValidUTF8(s[:maxHeader], "") + "…"
}

// DeadLetter is a message that no code could handle.
type DeadLetter struct {
	Seq      uint64 // in DEAD_LETTERS
	Time     time.Time
	Consumer string // who gave it up
	Machine  string // "unknown" when the message does not say it
	Key      string
	Subject  string // where redrive puts it back
	Reason   string
	Tries    int
	Header   nats.Header // of the message
	Untaken  bool        // it is a command whose key was not used up: redrive sends it under its own
	Partial  bool        // only the beginning of the message, or of its subject, is there; Get and List tell
	Body     []byte
}

// DeadLetters lists and redrives the messages in DEAD_LETTERS.
type DeadLetters struct {
	JS       jetstream.JetStream
	Names    streams.Names
	Appender *Appender
}

// Message builds the message that keeps a dead letter. Its id is derived from where the letter came from, so that
// giving it up twice keeps it once.
func (d DeadLetters) Message(l DeadLetter, id string) *nats.Msg {
	machine, key := l.Machine, l.Key
	if _, _, _, err := streams.SplitKey(key); err != nil || machine == "" {
		machine, key = "unknown", "unknown.unknown"
	}
	m := &nats.Msg{Subject: d.Names.Dead(l.Consumer, machine, key), Data: l.Body, Header: make(nats.Header, len(l.Header)+8)}
	for _, k := range kept {
		if v := l.Header[k]; len(v) > 0 {
			m.Header[k] = []string{short(v[0])}
		}
	}
	if len(l.Body) > maxLetter { // with its headers it would not fit
		m.Data = l.Body[:maxLetter]
		m.Header[headerDeadTruncated] = []string{strconv.Itoa(len(l.Body))}
	}
	if id := streams.Header(l.Header, streams.HeaderID); id != "" {
		m.Header[headerDeadID] = []string{short(id)}
		if l.Untaken {
			m.Header[headerDeadUntaken] = []string{"true"}
		}
	}
	m.Header[streams.HeaderID] = []string{short(id)}
	subject := l.Subject
	if len(subject) > maxDeadSubject {
		subject = short(subject)
		m.Header[headerDeadTruncated] = []string{strconv.Itoa(len(l.Body))}
	}
	for _, h := range [][2]string{
		{headerDeadReason, short(l.Reason)},
		{headerDeadSubject, subject},
		{headerDeadFrom, l.Consumer},
		{headerDeadTries, strconv.Itoa(l.Tries)},
		{headerDeadMachine, machine},
		{headerDeadKey, key},
	} {
		m.Header[h[0]] = []string{h[1]}
	}
	return m
}

func (d DeadLetters) stream(ctx context.Context) (jetstream.Stream, error) {
	s, err := d.JS.Stream(ctx, d.Names.Stream(streams.DeadStream))
	if err != nil {
		return nil, fmt.Errorf("streams: cannot open the dead letters: %w", err)
	}
	return s, nil
}

// List returns up to limit dead letters after a sequence, oldest first.
func (d DeadLetters) List(ctx context.Context, after uint64, limit int) ([]DeadLetter, error) {
	s, err := d.stream(ctx)
	if err != nil {
		return nil, err
	}
	var letters []DeadLetter
	for seq := after + 1; len(letters) < limit; {
		m, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(d.Names.Under("dead")))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if err = absent(ctx, s, seq, math.MaxUint64); err == nil {
				return letters, nil
			}
		}
		if err != nil {
			return nil, fmt.Errorf("streams: cannot read dead letter %d: %w", seq, err)
		}
		letters = append(letters, letterOf(m))
		seq = m.Sequence + 1
	}
	return letters, nil
}

// ErrNoLetter says that there is no dead letter of that sequence (any more).
var ErrNoLetter = errors.New("no such dead letter")

// Get returns one dead letter, or [ErrNoLetter].
func (d DeadLetters) Get(ctx context.Context, seq uint64) (DeadLetter, error) {
	s, err := d.stream(ctx)
	if err != nil {
		return DeadLetter{}, err
	}
	m, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		if err = absent(ctx, s, seq, seq); err == nil {
			return DeadLetter{}, fmt.Errorf("streams: %w: %d", ErrNoLetter, seq)
		}
	}
	if err != nil {
		return DeadLetter{}, fmt.Errorf("streams: cannot read dead letter %d: %w", seq, err)
	}
	return letterOf(m), nil
}

// Redrive puts a dead letter back where it came from and removes it. It goes under an id derived from the letter, so that redriving it twice within the stream's window does so
// once. What its sender expected of the revision goes with a command only if nobody has taken that: the note of the failure is stored with the entity, at another revision, so that the
// condition never held again, while under the sender's own key it is part of what that stands for.
func (d DeadLetters) Redrive(ctx context.Context, seq uint64) error {
	l, err := d.Get(ctx, seq)
	if err != nil {
		return err
	}
	if l.Partial {
		return fmt.Errorf("streams: dead letter %d holds only the beginning of its message, or of its subject, and cannot be put back: %w", seq, streams.ErrSubject)
	}
	m := &nats.Msg{Subject: l.Subject, Data: l.Body, Header: nats.Header{}}
	untaken := streams.Header(l.Header, headerDeadUntaken) != ""
	for _, k := range kept {
		if v := l.Header[k]; len(v) > 0 && (untaken || k != streams.HeaderExpect) {
			m.Header[k] = v
		}
	}
	m.Header[streams.HeaderID] = []string{streams.CommandID(l.Machine, l.Key, l.RedriveID())}
	if untaken {
		m.Header[streams.HeaderLookup] = []string{streams.Header(l.Header, headerDeadID)} // its sender may have repeated it meanwhile, under the same key
	}
	// Anybody with the permission to publish dead letters may have written it; that is no permission to write elsewhere.
	stream := streams.CommandStream
	switch {
	case under(l.Subject, d.Names.StoredAll()):
	case under(l.Subject, d.Names.Under("fx")):
		stream = streams.EffectStream
	default:
		return fmt.Errorf("streams: dead letter %d does not say where it came from: subject %q is no stored command and no effect: %w", seq, l.Subject, streams.ErrSubject)
	}
	if r := d.Appender.Append(ctx, []Write{{d.Names.Stream(stream), m}})[0]; r.Err != nil {
		return fmt.Errorf("streams: cannot put dead letter %d back to %s: %w", seq, l.Subject, r.Err)
	}
	if err := d.remove(ctx, seq); err != nil {
		return fmt.Errorf("streams: dead letter %d is put back, but cannot be removed: %w", seq, err)
	}
	return nil
}

// RedriveID is the id, without its scope, under which [DeadLetters.Redrive] puts a letter back. The time is in it because sequences are given out again where a stream has lost its last messages.
func (l DeadLetter) RedriveID() string { return fmt.Sprintf("redrive-%d-%d", l.Seq, l.Time.UnixNano()) }

// Drop removes the dead letter of a sequence that was stored at that time, whose message nobody handles then, or returns [ErrNoLetter], also where the sequence is that of another letter.
func (d DeadLetters) Drop(ctx context.Context, seq uint64, at time.Time) error {
	l, err := d.Get(ctx, seq)
	if err != nil {
		return err
	}
	if !l.Time.Equal(at) {
		return fmt.Errorf("streams: %w: %d of %s, that sequence is another one's now", ErrNoLetter, seq, at.UTC().Format(time.RFC3339Nano))
	}
	if err := d.remove(ctx, seq); err != nil {
		return fmt.Errorf("streams: cannot remove dead letter %d: %w", seq, err)
	}
	return nil
}

// remove removes a letter that may be gone already.
func (d DeadLetters) remove(ctx context.Context, seq uint64) error {
	s, err := d.stream(ctx)
	if err != nil {
		return err
	}
	if err := s.DeleteMsg(ctx, seq); !errors.Is(err, jetstream.ErrMsgNotFound) {
		return err
	}
	return nil
}

func letterOf(m *jetstream.RawStreamMsg) DeadLetter {
	tries, _ := strconv.Atoi(m.Header.Get(headerDeadTries)) // 0 when somebody else wrote the letter
	return DeadLetter{
		Seq: m.Sequence, Time: m.Time, Consumer: m.Header.Get(headerDeadFrom), Machine: m.Header.Get(headerDeadMachine), Key: m.Header.Get(headerDeadKey),
		Subject: m.Header.Get(headerDeadSubject), Reason: m.Header.Get(headerDeadReason), Tries: tries, Header: m.Header, Body: m.Data,
		Partial: m.Header.Get(headerDeadTruncated) != "",
	}
}

// absent is nil if a stream has no message from one sequence to another, and else why none can be read.
func absent(ctx context.Context, s jetstream.Stream, from, to uint64) error {
	info, err := streams.LeadersInfo(ctx, s, jetstream.WithDeletedDetails(true))
	if err != nil {
		return fmt.Errorf("streams: cannot ask for sequence %d: %w", from, err)
	}
	from, to = max(from, info.State.FirstSeq, 1), min(to, info.State.LastSeq)
	if from > to {
		return nil
	}
	there := to - from + 1
	for _, gone := range info.State.Deleted {
		if gone >= from && gone <= to {
			there--
		}
	}
	if there > 0 {
		return streams.ErrUnreadable
	}
	return nil
}

// under reports whether a subject begins as a filter does that ends in >.
func under(subject, filter string) bool {
	return strings.HasPrefix(subject, strings.TrimSuffix(filter, ">"))
}
