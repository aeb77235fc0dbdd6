package backup

// From the streams of a running installation to one file. Write, called by server/backup.go, reads the streams of the plan in the order of sections and encodes their messages as
// JSON lines into a zstd stream: most streams through an ordered consumer (messages, each), pending commands one by one (commands), streams beside the plan as snapshots of their
// server (snapshot). A head comes first; the end counts everything that was written.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Store is an installation.
type Store struct {
	NC       *nats.Conn
	JS       jetstream.JetStream
	Plan     streams.Plan
	Machines []*machines.Machine
	Appender *publish.Appender // of a restore
	Version  string            // of this program
	Log      *slog.Logger

	// Await does something as soon as the servers of the store can, such as when the members of a cluster are there. A restore needs it.
	Await func(context.Context, func(context.Context) error) error

	// Where the account may be shared, Others are the only streams beside those of the plan that a backup includes, as far as they exist, and that a restore takes. Where it is not, all are.
	Others []string
	Shared bool

	Without []string // streams beside those of the plan that a restore leaves out

	every time.Duration // between two log lines on the progress of a restore; 0 is 10 s
}

// Write copies everything to w. It disturbs nobody: consumers, commands and timers continue.
func (s *Store) Write(ctx context.Context, w io.Writer) (End, error) {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return End{}, err
	}
	out := &writer{s: s, json: json.NewEncoder(z), end: End{Messages: map[string]int{}, Entities: map[string]int{}, Missing: map[string]int{}}}
	out.json.SetEscapeHTML(false)
	err = out.all(ctx)
	if err == nil { // else the file has no end, and where nothing was read, not a byte
		err = z.Close()
	}
	if err != nil {
		return End{}, fmt.Errorf("backup: %w", err)
	}
	return out.end, nil
}

type writer struct {
	s    *Store
	json *json.Encoder
	end  End
	at   *Section // the one under way
}

func (w *writer) all(ctx context.Context) error {
	others, err := w.head(ctx)
	if err != nil {
		return err
	}
	for _, s := range w.s.sections() {
		read := w.messages
		if s.Kind == KindCommands {
			read = w.commands
		}
		if err := read(ctx, s); err != nil {
			return err
		}
	}
	for _, name := range others {
		if err := w.snapshot(ctx, name); err != nil {
			return err
		}
	}
	if err := w.readers(ctx); err != nil {
		return err
	}
	w.end.At = time.Now().UTC()
	return w.json.Encode(line{End: &w.end})
}

// sections are those of the plan, in the order in which they are read.
func (s *Store) sections() []Section {
	p, n := s.Plan, s.Plan.Names
	var sections []Section
	for _, b := range append([]string{streams.OperationsBucket}, p.Views...) {
		sections = append(sections, Section{Stream: streams.BucketStream(n.Bucket(b)), Kind: KindBucket})
	}
	sections = append(sections, Section{Stream: n.Stream(streams.CommandStream), Kind: KindCommands})
	for _, m := range s.Machines {
		sections = append(sections, Section{Stream: streams.BucketStream(n.Bucket(m.Plural)), Kind: KindEntities, Machine: m.Name})
	}
	return append(sections, Section{Stream: streams.BucketStream(n.Bucket(streams.IdempotencyBucket)), Kind: KindAnswers},
		Section{Stream: n.Stream(streams.EventStream), Kind: KindMessages}, Section{Stream: n.Stream(streams.DeadStream), Kind: KindMessages})
}

// head begins the backup, and returns the streams beside those of the plan that are part of it.
func (w *writer) head(ctx context.Context) (others []string, err error) {
	h := Head{Format: Format, Version: w.s.Version, Prefix: w.s.Plan.Names.Prefix, Schemas: map[string]int{}, Ends: map[string]uint64{}}
	for _, m := range w.s.Machines {
		h.Schemas[m.Name] = m.Schema()
	}
	for _, c := range w.s.Plan.Configs() {
		info, err := w.info(ctx, c.Name)
		if err != nil {
			return nil, err
		}
		if h.At.IsZero() {
			h.At = info.TimeStamp.UTC() // of the server: it stamps commands, too
		}
		h.Ends[c.Name] = info.State.LastSeq
		h.Last = max(h.Last, info.State.LastSeq)
	}
	if h.Others, err = w.others(ctx); err != nil { // after h.At, so that no bucket is overlooked that has answers from before
		return nil, err
	}
	return h.Others, w.json.Encode(line{Head: &h})
}

func (w *writer) info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	st, err := streams.Led(ctx, w.s.JS, stream)
	if err != nil {
		return nil, fmt.Errorf("cannot look at stream %s: %w", stream, err)
	}
	return st.CachedInfo(), nil
}

func (w *writer) begin(s Section) error {
	w.at = &s
	w.end.Messages[s.Stream] = 0
	return w.json.Encode(line{Section: &s})
}

func (w *writer) message(m *Message) error {
	w.end.Messages[w.at.Stream]++
	return w.json.Encode(line{Message: m})
}

// messages copies a stream up to its last message of now; the stream of a bucket until nothing is left, because a value that is replaced before it was read moves behind
// everything that was there at the start.
func (w *writer) messages(ctx context.Context, s Section) error {
	info, err := w.info(ctx, s.Stream)
	if err == nil {
		s.Consumers, err = w.consumers(ctx, s.Stream)
	}
	if err != nil {
		return err
	}
	if err := w.begin(s); err != nil {
		return err
	}
	if s.Kind == KindEntities {
		w.end.Entities[s.Stream] = 0
	}
	subjects := map[string]struct{}{}
	bucket := s.Kind != KindMessages
	err = each(ctx, w.s.JS, s.Stream, func(m jetstream.Msg, meta *jetstream.MsgMetadata) (bool, error) {
		if s.Kind == KindEntities {
			if _, again := subjects[m.Subject()]; !again && (m.Headers().Get("KV-Operation") == "" || len(m.Data()) > 0) {
				w.end.Entities[s.Stream]++
			}
			subjects[m.Subject()] = struct{}{}
		}
		err := w.message(&Message{m.Subject(), meta.Sequence.Stream, meta.Timestamp.UTC(), m.Headers(), m.Data()})
		return bucket || meta.Sequence.Stream < info.State.LastSeq, err
	})
	if missing := int(info.State.NumSubjects) - len(subjects); err == nil && s.Kind == KindEntities && missing > 0 { // they are in memory
		w.end.Missing[s.Stream] = missing
	}
	return err
}

const (
	lookAfter = 2 * time.Second // without a message: is there one?
	silence   = time.Minute     // without a message is a failure

	// What is asked for at a time. The server sends it as fast as it reads it, and closes a connection for which more than 64 MB wait. With a bound of
	// messages, too, the client would have room for exactly these, and not for what the server says of a request.
	aheadBytes = 4 << 20 // several messages of the largest size
)

// each hands over the messages of a stream in order, until there are no more or the function says so.
func each(ctx context.Context, js jetstream.JetStream, stream string, take func(jetstream.Msg, *jetstream.MsgMetadata) (bool, error)) error {
	failed := func(err error) error { return fmt.Errorf("cannot read stream %s: %w", stream, err) }
	var cons jetstream.Consumer
	var now jetstream.StreamState
	look := func() error {
		return steady(ctx, func(ctx context.Context) error {
			st, err := streams.Led(ctx, js, stream)
			if err == nil {
				now = st.CachedInfo().State
			}
			return err
		})
	}
	if err := look(); err != nil {
		return failed(err)
	}
	if now.Msgs == 0 {
		return nil
	}
	if err := steady(ctx, func(ctx context.Context) (err error) {
		cons, err = js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
		return err
	}); err != nil {
		return failed(err)
	}
	it, err := cons.Messages(jetstream.PullMaxBytes(aheadBytes))
	if err != nil {
		return failed(err)
	}
	defer it.Stop()
	last, until, looks := &jetstream.MsgMetadata{}, uint64(0), 0
	for quiet := time.Duration(0); ; {
		wait, cancel := context.WithTimeout(ctx, lookAfter)
		m, err := it.Next(jetstream.NextContext(wait))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && quiet < silence {
			quiet += lookAfter
			ask, done := context.WithTimeout(ctx, answered)
			info, err := cons.Info(ask)
			done()
			// The last ones were removed before they came, and none is lost on its way. Sequences of the stream say less: a consumer may stand behind what is gone.
			if err == nil && info.NumPending == 0 && (info.Delivered.Consumer == 0 || last.Consumer == info.Name && info.Delivered.Consumer <= last.Sequence.Consumer) {
				return nil
			}
			continue
		}
		if err != nil {
			return failed(err)
		}
		quiet = 0
		if last, err = m.Metadata(); err != nil {
			return failed(err)
		}
		more, err := take(m, last)
		if err != nil || !more {
			return err
		}
		if last.NumPending > 0 || last.Sequence.Stream < until {
			continue
		}
		// The server takes a message that is replaced from what is pending before it adds the new one: while others write, nothing may seem to be left where
		// there is. What is in the stream by now is read first, a few times.
		if looks++; looks == 4 {
			return nil
		}
		if err := look(); err != nil {
			return failed(err)
		}
		if until = now.LastSeq; last.Sequence.Stream >= until {
			return nil
		}
	}
}

// consumers are the durable ones of others; those of this program are made again by itself.
func (w *writer) consumers(ctx context.Context, stream string) ([]Consumer, error) {
	own := consumers.SeriesOf(w.s.Machines...).Views
	st, err := w.s.JS.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	var all []Consumer
	list := st.ListConsumers(ctx)
	for c := range list.Info() {
		if c.Config.Durable == "" || c.Config.Durable == streams.CopyConsumer || slices.Contains(own, c.Config.Durable) {
			continue
		}
		floor := c.AckFloor.Stream
		if c.Config.AckPolicy == jetstream.AckNonePolicy {
			floor = c.Delivered.Stream
		}
		all = append(all, Consumer{Config: c.Config, Floor: floor})
	}
	return all, list.Err()
}

// readers records the durable consumers that users of the role read have made on their copies: the copies are made again after a restore, without them.
func (w *writer) readers(ctx context.Context) error {
	js, err := streams.Readers(ctx, w.s.NC)
	if js == nil || err != nil {
		return err
	}
	for _, c := range w.s.Plan.Configs() {
		copied, err := js.Stream(ctx, c.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot look at the copy of %s: %w", c.Name, err)
		}
		list := copied.ListConsumers(ctx)
		for info := range list.Info() {
			if info.Config.Durable != "" {
				w.end.Readers = append(w.end.Readers, c.Name+"/"+info.Config.Durable)
			}
		}
		if err := list.Err(); err != nil {
			return fmt.Errorf("cannot list the consumers of the copy of %s: %w", c.Name, err)
		}
	}
	return nil
}

// commands copies those that wait. The stream is a work queue, on which nobody else may consume: they are read one by one, and are few.
func (w *writer) commands(ctx context.Context, s Section) error {
	name := s.Stream
	info, err := w.info(ctx, name)
	if err != nil {
		return err
	}
	if err := w.begin(s); err != nil {
		return err
	}
	st, err := w.s.JS.Stream(ctx, name)
	if err != nil {
		return err
	}
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; {
		m, err := st.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(w.s.Plan.Names.StoredAll()))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the commands that wait: %w", err)
		}
		if m.Sequence > info.State.LastSeq {
			return nil
		}
		if err := w.message(&Message{m.Subject, m.Sequence, m.Time.UTC(), plain(m.Header), m.Data}); err != nil {
			return err
		}
		seq = m.Sequence + 1
	}
	return nil
}

// plain leaves out what the server itself has written into a header, and would act on again.
func plain(h nats.Header) nats.Header {
	kept := nats.Header{}
	for name, values := range h {
		if name == streams.HeaderID || !strings.HasPrefix(name, "Nats-") {
			kept[name] = values
		}
	}
	return kept
}

func (w *writer) snapshot(ctx context.Context, stream string) error {
	if _, err := w.s.JS.Stream(ctx, stream); errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return streams.Snapshot(ctx, w.s.NC, stream, func(head streams.SnapshotHead) error {
		return w.begin(Section{Stream: stream, Kind: KindSnapshot, Snapshot: &head})
	}, func(part []byte) error {
		w.end.Messages[stream]++
		return w.json.Encode(line{Part: part})
	})
}
