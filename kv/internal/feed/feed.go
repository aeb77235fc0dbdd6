// Package feed follows the stream of a bucket: what a bucket of package kv is watched by, and what an index is kept by.
//
// A [Feed] is opened after a [Position] and gives the updates that follow in batches. It never heals itself; whoever has it opens another
// one where it stood, after a [Backoff]. Whether the stream still has what was read before is found out when a feed is opened ([ErrReset]).
package feed

// Feed, a push consumer on the stream of a bucket. Open checks that the stream still has what was read (witness.go) and starts after the
// Position; Next takes what the connection has received and returns it as updates, a marker as Deleted (take), and answers flow control
// and heartbeats (control). A gap, silence or a new connection is an error: kv.Bucket.Watch and index.Index then open another feed.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

const (
	beat      = time.Second     // the server says that it is there this often when it has nothing else to say
	silence   = 3 * time.Second // after this long without a word the feed is broken
	patience  = 5 * time.Second // for one request to the server
	Inflight  = 128 << 10       // messages between the connection and the reader; flow control holds back 32 MiB
	batchSize = 256             // updates taken at once
)

// ErrReset says that the stream is not the one that was being followed: it was deleted, restored or cut. What was
// read before is void; begin again from the start.
var ErrReset = errors.New("stream was reset")

var (
	errGap    = errors.New("a message was lost on the way")
	errSilent = errors.New("server is silent")
	errMoved  = errors.New("connection was made anew")
	errEnded  = errors.New("server ended the watch")
)

// Update is one message of a bucket's stream.
type Update struct {
	Key      string
	Value    []byte
	Revision uint64
	At       int64 // when it was stored, in nanoseconds
	Deleted  bool  // by a marker; there is no value
}

// Position is where a follower of a stream stands. The zero value is before its beginning.
type Position struct {
	Revision uint64    // everything up to here was taken
	created  time.Time // of the stream, so that another one of the same name is recognised
	seen     witnesses // the last of what was taken, by which a stream that lost its end is recognised
}

// Feed is a raw push consumer over a bucket's stream from one revision on. The reader takes messages straight from
// the connection's channel, in batches and on its own goroutine. In BenchmarkSnapshot a key costs 8.2 us of CPU with
// it, the server's part included, 9.4 with WatchAll and 10.1 with an ordered consumer (best of four runs); those have
// a channel hop or locks and several allocations more. It sees every gap and never heals itself: on any error, open
// another one.
//
// It delivers in stream order rather than "last per subject": with one message per subject these are the same
// messages, the order gives a revision that everything up to it was seen, and resuming is the same request.
type Feed struct {
	js     jetstream.JetStream
	stream string
	name   string
	skip   int // length of the subject's prefix before the key
	msgs   chan *nats.Msg
	sub    *nats.Subscription
	status chan nats.Status
	timer  *time.Timer

	delivered uint64 // messages taken
	filter    string // subjects
	until     uint64 // the reader has not caught up before this sequence
	settled   int    // how often it seemed that he has
	Position         // after the last update that was given
	Known     uint64 // the stream's last sequence when the feed was opened
	Keys      int    // that the bucket held then, also those whose value it cannot read
	Pending   uint64 // messages that the server still had after the last one taken
	CaughtUp  bool   // the reader has had all that there was at some moment since the feed was opened
}

// Open begins after the position, with the keys that the filter names; empty is all. It fails with [ErrReset] if the stream has never been
// there, or lost what was taken. The feed has to be closed.
func Open(ctx context.Context, js jetstream.JetStream, bucket, filter string, after Position) (_ *Feed, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	nc, prefix := js.Conn(), streams.BucketSubject(bucket, "")
	f := &Feed{js: js, stream: streams.BucketStream(bucket), skip: len(prefix), msgs: make(chan *nats.Msg, Inflight), timer: time.NewTimer(silence), Position: after}
	f.status = nc.StatusChanged(nats.CONNECTED, nats.CLOSED) // before the first look: all that follows is of one connection
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	s, err := streams.Led(ctx, js, f.stream)
	if err != nil {
		return nil, fmt.Errorf("kv: cannot look at bucket %s: %w", bucket, err)
	}
	info := s.CachedInfo()
	if info.State.LastSeq < after.Revision || !after.created.IsZero() && !info.Created.Equal(after.created) {
		return nil, fmt.Errorf("kv: cannot follow bucket %s after revision %d: %w", bucket, after.Revision, ErrReset)
	}
	f.created, f.Known, f.Keys = info.Created, info.State.LastSeq, int(info.State.NumSubjects) // they are in memory
	from, err := after.resume(ctx, s, prefix)
	if err != nil {
		return nil, fmt.Errorf("kv: cannot follow bucket %s after revision %d: %w", bucket, after.Revision, err)
	}
	if f.sub, err = nc.ChanSubscribe(nc.NewInbox(), f.msgs); err != nil {
		return nil, fmt.Errorf("kv: cannot watch bucket %s: %w", bucket, err)
	}
	if filter == "" {
		filter = ">"
	}
	f.filter = prefix + filter
	c, err := js.CreatePushConsumer(ctx, f.stream, jetstream.ConsumerConfig{
		DeliverSubject: f.sub.Subject, FilterSubject: f.filter,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from + 1,
		AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, FlowControl: true, IdleHeartbeat: beat,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: 30 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("kv: cannot watch bucket %s: %w", bucket, err)
	}
	ci := c.CachedInfo()
	if f.name, f.Pending = ci.Name, ci.NumPending; f.Pending > 0 {
		return f, nil
	}
	if err := f.settle(ctx, from); err != nil {
		return nil, err
	}
	if f.CaughtUp {
		f.Revision = f.Known
	}
	return f, nil
}

// settle sees whether the reader, who has everything up to a sequence, has caught up where nothing seems to be pending: the server takes a value that is
// replaced from what is pending before it adds the new one, so while others write there may be more. It is looked for a few times: where several keys are
// written without a pause, nothing else ends it.
func (f *Feed) settle(ctx context.Context, sequence uint64) error {
	const times = 4
	if f.CaughtUp || sequence < f.until {
		return nil
	}
	if f.settled+1 < times {
		ctx, cancel := context.WithTimeout(ctx, silence)
		defer cancel()
		last, err := streams.Last(ctx, f.js.Conn(), f.stream, f.filter)
		if err != nil {
			return fmt.Errorf("kv: cannot look at the end of stream %s: %w", f.stream, err)
		}
		f.settled++
		if last != nil && last.Sequence > sequence {
			f.until = last.Sequence
			return nil
		}
	}
	f.CaughtUp = true
	return nil
}

// Close leaves nothing behind, neither here nor, if it can be reached, on the server.
func (f *Feed) Close() {
	nc := f.js.Conn()
	nc.RemoveStatusListener(f.status)
	f.timer.Stop()
	if f.sub != nil {
		_ = f.sub.Unsubscribe()
	}
	if f.name != "" && nc.IsConnected() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = f.js.DeleteConsumer(ctx, f.stream, f.name) // the server does so by itself, only later
	}
}

// Next waits for updates and appends what is there to batch, up to batchSize. What it appends is valid even if it
// returns an error. It may return nothing when only Revision, Pending or CaughtUp have changed.
func (f *Feed) Next(ctx context.Context, batch []Update) (_ []Update, err error) {
	select {
	case <-f.status: // before messages: what came over the new connection may be the rest of what the old one lost
		return batch, errMoved
	default:
	}
	if f.Pending == 0 && !f.CaughtUp && f.delivered > 0 { // the reader has what came before
		if _ = f.settle(ctx, f.Revision); f.CaughtUp { // a leader that does not answer is asked again with the next word of the server
			return batch, nil
		}
	}
	f.timer.Reset(silence)
	select {
	case <-ctx.Done():
		return batch, ctx.Err()
	case <-f.status:
		return batch, errMoved
	case <-f.timer.C:
		return batch, errSilent
	case m := <-f.msgs:
		defer func() { f.seen.note(batch) }()
		for {
			if batch, err = f.take(batch, m); err != nil || len(batch) >= batchSize {
				return batch, err
			}
			select {
			case m = <-f.msgs:
			default:
				return batch, nil
			}
		}
	}
}

func (f *Feed) take(batch []Update, m *nats.Msg) ([]Update, error) {
	if len(m.Data) == 0 && len(m.Header["Status"]) > 0 {
		return batch, f.control(m)
	}
	sseq, dseq, at, pending, ok := parseReply(m.Reply)
	if !ok || dseq != f.delivered+1 || len(m.Subject) <= f.skip {
		return batch, errGap
	}
	f.delivered, f.Revision, f.Pending = dseq, sseq, pending
	return append(batch, Update{Key: m.Subject[f.skip:], Value: m.Data, Revision: sseq, At: at, Deleted: IsMarker(m.Header)}), nil
}

// control takes a message of the server itself: a request for flow control, a heartbeat, or the end.
func (f *Feed) control(m *nats.Msg) error {
	if m.Header["Status"][0] != "100" {
		return fmt.Errorf("%w: %s", errEnded, m.Header.Get("Description"))
	}
	// Whoever may publish to our inbox may say where this goes: it is for flow control only.
	if stalled := cmp.Or(m.Reply, m.Header.Get("Nats-Consumer-Stalled")); stalled != "" {
		if !strings.HasPrefix(stalled, "$JS.FC.") {
			return errGap
		}
		return f.js.Conn().Publish(stalled, nil)
	}
	if m.Header.Get("Nats-Last-Consumer") != strconv.FormatUint(f.delivered, 10) {
		return errGap
	}
	// An idle server has looked at the whole stream, beyond our last message if the last ones were removed.
	if last, err := strconv.ParseUint(m.Header.Get("Nats-Last-Stream"), 10, 64); err == nil && last > f.Revision {
		f.Revision = last
	}
	if f.Revision >= f.Known {
		f.Pending, f.CaughtUp = 0, true
	}
	return nil
}

// IsMarker reports whether a message is the marker of a deleted key, and no value: by nats.go's header, or by the server's when a message's life ended.
func IsMarker(h nats.Header) bool {
	if len(h) == 0 {
		return false
	}
	if op := h["KV-Operation"]; len(op) > 0 {
		return op[0] == "DEL" || op[0] == "PURGE"
	}
	return len(h["Nats-Marker-Reason"]) > 0
}

// parseReply reads stream sequence, consumer sequence, time and pending count from a message's reply subject:
// $JS.ACK.<stream>.<consumer>.<tries>.<sseq>.<dseq>.<time>.<pending>, or the longer form with domain and account.
func parseReply(s string) (sseq, dseq uint64, at int64, pending uint64, ok bool) {
	dots := 0
	for i := range len(s) {
		if s[i] == '.' {
			dots++
		}
	}
	first := 5
	if dots > 8 {
		first = 7
	}
	var n [4]uint64
	field := 0
	for i := range len(s) {
		if s[i] == '.' {
			if field++; field == first+4 {
				break
			}
			continue
		}
		if k := field - first; k >= 0 {
			if s[i] < '0' || s[i] > '9' {
				return 0, 0, 0, 0, false
			}
			n[k] = n[k]*10 + uint64(s[i]-'0') // #nosec G602 -- k is below four
		}
	}
	return n[0], n[1], int64(n[2]), n[3], field >= first+3 // #nosec G602 -- it has four
}

// Backoff waits longer from one failure to the next, by random times, so that processes do not retry together.
type Backoff struct{ d time.Duration }

// Reset begins with short waits again, after a try that made progress.
func (b *Backoff) Reset() { b.d = 0 }

// Wait waits for 25 ms to 2 s, or until the context ends.
func (b *Backoff) Wait(ctx context.Context) error {
	b.d = min(max(2*b.d, 50*time.Millisecond), 2*time.Second)
	t := time.NewTimer(b.d/2 + rand.N(b.d/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
