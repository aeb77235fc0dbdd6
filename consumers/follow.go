package consumers

// Events in the order of their stream, for those who fold or record them (packages views and audit): each of their durable consumers is read by one process, which begins again
// behind what it has acknowledged.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Feed are the events of a machine under some subjects, through a durable consumer.
type Feed struct {
	Machine   *machines.Machine
	Name, Doc string   // of the consumer
	Subjects  []string // of events
	Batch     int      // taken at once

	d      *Deps
	cons   jetstream.Consumer
	last   uint64 // consumer sequence of the last delivery; 0 after a reset, which starts it at 1
	floor  uint64 // sequence up to which all is taken that is to be taken
	behind bool   // there was more then
}

// Happened is an event and its place among those of its entity.
type Happened struct {
	Msg        jetstream.Msg
	Key        string // of the entity; empty where Err says why it cannot be told
	Err        error
	Seq        uint64
	At         time.Time
	Version, N uint64 // 0 for an event of no version
}

// Open makes the consumer, and resets it to what is acknowledged.
func (f *Feed) Open(ctx context.Context, d *Deps) error {
	f.d = d
	stream := d.Names.Stream(streams.EventStream)
	cons, err := d.JS.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: f.Name, Description: f.Doc, FilterSubjects: f.Subjects,
		AckPolicy: jetstream.AckAllPolicy, AckWait: time.Minute, MaxAckPending: 4 * f.Batch, MaxDeliver: -1,
	})
	if err != nil {
		return fmt.Errorf("cannot open consumer %s: %w", f.Name, err)
	}
	// Events that were taken and not folded come first: after a later event, a view would count them as folded.
	if _, err := d.JS.ResetConsumer(ctx, stream, f.Name); err != nil {
		return fmt.Errorf("cannot reset consumer %s: %w", f.Name, err)
	}
	info := cons.CachedInfo()
	f.cons, f.last, f.floor, f.behind = cons, 0, info.AckFloor.Stream, info.NumPending > 0 || info.NumAckPending > 0
	if f.floor == 0 { // it has had nothing yet, and in a cluster does not say that the stream begins later, as one that was restored does
		events, err := streams.Led(ctx, d.JS, stream)
		if err != nil {
			return fmt.Errorf("cannot ask for the oldest event: %w", err)
		}
		f.floor = max(events.CachedInfo().State.FirstSeq, 1) - 1
	}
	return nil
}

// Next waits for events, and takes those that have come. There are none when it has waited for long enough to be asked again.
func (f *Feed) Next(ctx context.Context) ([]Happened, error) {
	first, err := f.cons.Next(jetstream.FetchContext(ctx))
	if ctx.Err() != nil || errors.Is(err, jetstream.ErrNoMessages) || errors.Is(err, nats.ErrTimeout) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot take events: %w", err)
	}
	if err := f.overtaken(ctx, first); err != nil {
		return nil, err
	}
	msgs := []jetstream.Msg{first}
	if f.Batch > 1 {
		more, err := f.cons.FetchNoWait(f.Batch - 1)
		if err != nil {
			return nil, fmt.Errorf("cannot take events: %w", err)
		}
		for m := range more.Messages() {
			msgs = append(msgs, m)
		}
		if err := more.Error(); err != nil {
			return nil, fmt.Errorf("cannot take events: %w", err)
		}
	}
	events := make([]Happened, 0, len(msgs))
	for _, m := range msgs {
		ev, err := f.take(m)
		if err != nil {
			return nil, err
		}
		events = append(events, ev)
	}
	return events, nil
}

// Done acknowledges events with all before them, when what was made of them in some streams is stored: or a power loss could cost what the consumer is past.
func (f *Feed) Done(ctx context.Context, events []Happened, in ...string) error {
	if err := f.d.Appender.Sync(ctx, append([]string{f.d.Names.Stream(streams.EventStream)}, in...)...); err != nil {
		return err
	}
	return events[len(events)-1].Msg.DoubleAck(ctx)
}

// overtaken reports events that expired before they were taken, as the oldest do when EVENTS is full: the server skips them silently, and nothing brings them back. Who
// was behind when it was opened may not have wanted those that have expired since.
func (f *Feed) overtaken(ctx context.Context, next jetstream.Msg) error {
	meta, err := next.Metadata()
	if err != nil || !f.behind || meta.Sequence.Stream <= f.floor+1 {
		return err
	}
	s, err := streams.Led(ctx, f.d.JS, f.d.Names.Stream(streams.EventStream))
	if err != nil {
		return fmt.Errorf("cannot ask for the oldest event: %w", err)
	}
	if oldest := s.CachedInfo().State.FirstSeq; oldest > f.floor+1 {
		f.d.Meter.Skipped(f.Name)
		f.d.Log.Error("events expired before they were taken; what is made of them may lack them for good: EVENTS is too small for its lag", "consumer", f.Name, "had", f.floor, "oldest", oldest)
	}
	return nil
}

// take reads the position of an event.
func (f *Feed) take(m jetstream.Msg) (ev Happened, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return ev, err
	}
	if meta.Sequence.Consumer != f.last+1 {
		return ev, fmt.Errorf("delivery %d follows %d: another process takes the events of %s", meta.Sequence.Consumer, f.last, f.Name)
	}
	f.last, f.floor, f.behind = meta.Sequence.Consumer, meta.Sequence.Stream, meta.NumPending > 0
	ev = Happened{Msg: m, Seq: meta.Sequence.Stream, At: meta.Timestamp}
	addr, err := f.d.Names.ParseEvent(m.Subject(), f.Machine.Parent != "")
	if err != nil {
		ev.Err = err
		return ev, nil
	}
	ev.Key = addr.Key
	ev.Version, ev.N, _ = streams.NumberOf(f.Machine.Name, addr.Key, streams.Header(m.Headers(), streams.HeaderID))
	if at, err := time.Parse(time.RFC3339Nano, streams.Header(m.Headers(), "ce-time")); err == nil {
		ev.At = at
	}
	return ev, nil
}

// In reports whether a view has the event. Its sequence does not show that: where EVENTS was created again, or lost its last
// messages, sequences are given out again. Its number does, which rises over all lives of an entity, unless the entity lost
// its last versions, too: then later ones have their numbers, and later times. An event that is published again after such
// a loss keeps both.
func (ev *Happened) In(v *machines.Folded) bool {
	switch {
	case ev.At.After(v.At):
		return false
	case ev.Version == 0 || v.Version == 0: // of no version, or of a value of an earlier program
		return ev.Seq <= v.Seq
	case ev.Version == v.Version:
		return ev.N <= v.N
	}
	return ev.Version < v.Version
}

// Note makes the event the last one that the view has.
func (ev *Happened) Note(v *machines.Folded) {
	v.Seq = ev.Seq
	if ev.Version > 0 {
		v.Version, v.N = ev.Version, ev.N
	}
	if ev.At.After(v.At) {
		v.At = ev.At
	}
}
