package views

// From events to read models. serve resets the durable consumer of one view to its ack floor (open) and repeats batch: it takes events from stream EVENTS, groups them by entity
// (take), and for each entity fold reads the value in the view's bucket, applies Project of the table to the events that the value does not include yet (folded), and writes it
// once. Then the batch is acked. An event that cannot be folded is logged and left out (skip).

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Views folds events into the read models of all machines. Each view has a durable consumer of its own, and its own
// memory of what it has folded: the same event reaches every view that wants it, exactly once in effect, whatever
// happens to the others.
type Views struct {
	consumers.Deps
	Batch   int        // events taken at once; 0 is 512
	Indexes *index.Map // of the machines: they know most entities that live; of others the bucket is asked. Nil knows none
}

// Run folds until ctx ends, also the views of machines that are added meanwhile.
func (v *Views) Run(ctx context.Context) error {
	v.Deps = v.WithDefaults()
	v.Batch = cmp.Or(v.Batch, 512)
	return v.EachMachine(ctx, v.fold)
}

// fold builds the views of one machine.
func (v *Views) fold(ctx context.Context, m *machines.Machine) error {
	var all sync.WaitGroup
	for _, view := range m.Views {
		f := &folder{v: v, m: m, view: view, name: consumers.ViewName(m, view), failures: map[string]int{}}
		all.Go(func() { f.v.Keep(ctx, f.name, f.serve) })
	}
	all.Wait()
	return nil
}

// folder builds one view.
type folder struct {
	v      *Views
	m      *machines.Machine
	view   machines.View
	name   string
	bucket *kv.Bucket[machines.Folded]
	last   uint64 // consumer sequence of the last delivery; 0 after a reset, which starts it at 1
	floor  uint64 // sequence up to which the view has all that it is to have
	behind bool   // there was more then

	failures map[string]int // times that the value of a key could not be read, one after the other
}

func (f *folder) serve(ctx context.Context) error {
	cons, err := f.open(ctx)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := f.batch(ctx, cons); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) open(ctx context.Context) (cons jetstream.Consumer, err error) {
	if f.bucket, err = kv.Open(ctx, f.v.JS, f.v.Names.Bucket(f.m.BucketOf(f.view)), kv.JSON[machines.Folded]()); err != nil {
		return nil, err
	}
	stream := f.v.Names.Stream(streams.EventStream)
	cons, err = f.v.JS.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: f.name, Description: f.view.Doc, FilterSubjects: f.subjects(),
		AckPolicy: jetstream.AckAllPolicy, AckWait: time.Minute, MaxAckPending: 4 * f.v.Batch, MaxDeliver: -1,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open consumer %s: %w", f.name, err)
	}
	// Events that were taken and not folded come first: after a later event, the view would count them as folded.
	if _, err := f.v.JS.ResetConsumer(ctx, stream, f.name); err != nil {
		return nil, fmt.Errorf("cannot reset consumer %s: %w", f.name, err)
	}
	info := cons.CachedInfo()
	f.last, f.floor, f.behind = 0, info.AckFloor.Stream, info.NumPending > 0 || info.NumAckPending > 0
	if f.floor == 0 { // it has had nothing yet, and in a cluster does not say that the stream begins later, as one that was restored does
		events, err := streams.Led(ctx, f.v.JS, stream)
		if err != nil {
			return nil, fmt.Errorf("cannot ask for the oldest event: %w", err)
		}
		f.floor = max(events.CachedInfo().State.FirstSeq, 1) - 1
	}
	return cons, nil
}

// overtaken reports events that expired before the view had them, as the oldest do when EVENTS is full: the server skips them silently, and nothing brings them back. A view that
// was behind when it was opened may not have wanted those that have expired since.
func (f *folder) overtaken(ctx context.Context, next jetstream.Msg) error {
	meta, err := next.Metadata()
	if err != nil || !f.behind || meta.Sequence.Stream <= f.floor+1 {
		return err
	}
	s, err := streams.Led(ctx, f.v.JS, f.v.Names.Stream(streams.EventStream))
	if err != nil {
		return fmt.Errorf("cannot ask for the oldest event: %w", err)
	}
	if oldest := s.CachedInfo().State.FirstSeq; oldest > f.floor+1 {
		f.v.Meter.Skipped(f.name)
		f.v.Log.Error("events expired before a view had read them; it may lack them for good: EVENTS is too small for its lag", "view", f.name, "had", f.floor, "oldest", oldest)
	}
	return nil
}

// subjects matches the view's events of all entities.
func (f *folder) subjects() []string {
	var subjects []string
	for _, name := range f.view.Events {
		t, _ := f.m.Event(name) // Define has checked it
		subjects = append(subjects, f.v.Names.Event(f.m.Name, streams.AnyKey(f.m.Parent != ""), t.Subject))
	}
	return subjects
}

// batch folds what has arrived: each entity is read and written once, however many of its events are in the batch.
func (f *folder) batch(ctx context.Context, cons jetstream.Consumer) error {
	first, err := cons.Next(jetstream.FetchContext(ctx))
	if ctx.Err() != nil || errors.Is(err, jetstream.ErrNoMessages) || errors.Is(err, nats.ErrTimeout) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot take events: %w", err)
	}
	if err := f.overtaken(ctx, first); err != nil {
		return err
	}
	msgs := []jetstream.Msg{first}
	if f.v.Batch > 1 {
		more, err := cons.FetchNoWait(f.v.Batch - 1)
		if err != nil {
			return fmt.Errorf("cannot take events: %w", err)
		}
		for m := range more.Messages() {
			msgs = append(msgs, m)
		}
		if err := more.Error(); err != nil {
			return fmt.Errorf("cannot take events: %w", err)
		}
	}
	var keys []string
	events := map[string][]happened{}
	for _, m := range msgs {
		key, ev, err := f.take(m)
		if err != nil {
			return err
		}
		if key == "" {
			continue
		}
		if events[key] == nil {
			keys = append(keys, key)
		}
		events[key] = append(events[key], ev)
	}
	for _, key := range keys {
		if err := f.fold(ctx, key, events[key]); err != nil {
			return err
		}
	}
	for _, stream := range []string{f.v.Names.Stream(streams.EventStream), streams.BucketStream(f.m.BucketOf(f.view))} { // or a power loss could cost what the consumer is past
		if err := f.v.Appender.Sync(ctx, stream); err != nil {
			return err
		}
	}
	return msgs[len(msgs)-1].DoubleAck(ctx)
}

// happened is an event and its place among those of its entity.
type happened struct {
	msg        jetstream.Msg
	seq        uint64
	at         time.Time
	version, n uint64 // 0 for an event of no version
}

// take reads the position of an event. The key is empty for one that is left out.
func (f *folder) take(m jetstream.Msg) (key string, ev happened, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return "", ev, err
	}
	if meta.Sequence.Consumer != f.last+1 {
		return "", ev, fmt.Errorf("delivery %d follows %d: another process takes the events of the view", meta.Sequence.Consumer, f.last)
	}
	f.last, f.floor, f.behind = meta.Sequence.Consumer, meta.Sequence.Stream, meta.NumPending > 0
	ev = happened{msg: m, seq: meta.Sequence.Stream, at: meta.Timestamp}
	addr, err := f.v.Names.ParseEvent(m.Subject(), f.m.Parent != "")
	if err != nil {
		f.skip("", []happened{ev}, err)
		return "", ev, nil
	}
	ev.version, ev.n, _ = streams.NumberOf(f.m.Name, addr.Key, streams.Header(m.Headers(), streams.HeaderID))
	if at, err := time.Parse(time.RFC3339Nano, streams.Header(m.Headers(), "ce-time")); err == nil {
		ev.at = at
	}
	return addr.Key, ev, nil
}

// skip leaves events out of the view: the entity's own state does not depend on views.
func (f *folder) skip(key string, events []happened, err error) {
	for _, ev := range events {
		f.v.Meter.Skipped(f.name)
		f.v.Log.Error("a view skips an event", "view", f.name, "key", key, "seq", ev.seq, "error", err)
	}
}

// fold adds events of one entity to its view, which is read and written once. A value that cannot be read stops the view for a number of tries. When the bucket refuses the result, the
// events are folded one by one, and the one to blame is left out.
func (f *folder) fold(ctx context.Context, key string, events []happened) error {
	folded, revision, err := f.load(ctx, key)
	if errors.Is(err, streams.ErrUnreadable) {
		if f.failures[key]++; f.failures[key] >= consumers.MaxTries {
			f.skip(key, events, err)
			return nil
		}
	}
	if err != nil {
		return err
	}
	delete(f.failures, key)
	if revision == 0 {
		if events, err = f.undropped(ctx, key, events); err != nil {
			return err
		}
	}
	dirty := false
	for _, ev := range events {
		if ev.folded(&folded) {
			continue
		}
		value, err := f.project(ev.msg, folded.Value)
		if err != nil {
			f.skip(key, []happened{ev}, err)
			continue
		}
		dirty = true
		ev.note(&folded)
		if value != nil {
			folded.Value = value
		}
	}
	if !dirty {
		return nil
	}
	_, err = f.bucket.Put(ctx, key, folded, revision)
	if !publish.Permanent(err) {
		return err
	}
	if len(events) == 1 {
		f.skip(key, events, err)
		return nil
	}
	for i := range events {
		if err := f.fold(ctx, key, events[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// undropped leaves out the events of an entity up to the version at which its value was dropped, as long as it has no other one: a view that is built anew reads them again, and
// is to have nothing of it (package ended).
func (f *folder) undropped(ctx context.Context, key string, events []happened) ([]happened, error) {
	if ix := f.v.Indexes.Get(f.m.Name); ix != nil && ix.Holds(key) {
		return events, nil
	}
	left, err := kv.Read(ctx, f.v.NC, f.v.Names.Bucket(f.m.Plural), key)
	if errors.Is(err, streams.ErrUnreadable) || err == nil && !kv.Dropped(left) {
		return events, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot ask whether %s %s was dropped: %w", f.m.Name, key, err)
	}
	e, err := f.m.DecodeAt(key, left.Data)
	if err != nil { // it is parked, and was told
		return events, nil
	}
	return slices.DeleteFunc(slices.Clone(events), func(ev happened) bool { return ev.version <= e.Version }), nil
}

func (f *folder) load(ctx context.Context, key string) (machines.Folded, uint64, error) {
	entry, err := f.bucket.Get(ctx, key)
	var corrupt *kv.CorruptError
	switch {
	case errors.As(err, &corrupt):
		f.v.Log.Error("a value of a view cannot be read; building it anew", "view", f.name, "key", key, "error", err)
		return machines.Folded{}, corrupt.Revision, nil
	case errors.Is(err, kv.ErrNotFound):
		return machines.Folded{}, 0, nil
	}
	return entry.Value, entry.Revision, err
}

// folded reports whether a view has the event. Its sequence does not show that: where EVENTS was created again, or lost its last
// messages, sequences are given out again. Its number does, which rises over all lives of an entity, unless the entity lost
// its last versions, too: then later ones have their numbers, and later times. An event that is published again after such
// a loss keeps both.
func (ev *happened) folded(v *machines.Folded) bool {
	switch {
	case ev.at.After(v.At):
		return false
	case ev.version == 0 || v.Version == 0: // of no version, or of a value of an earlier program
		return ev.seq <= v.Seq
	case ev.version == v.Version:
		return ev.n <= v.N
	}
	return ev.version < v.Version
}

// note makes the event the last one that the view has.
func (ev *happened) note(v *machines.Folded) {
	v.Seq = ev.seq
	if ev.version > 0 {
		v.Version, v.N = ev.version, ev.n
	}
	if ev.at.After(v.At) {
		v.At = ev.at
	}
}

func (f *folder) project(m jetstream.Msg, previous json.RawMessage) (value json.RawMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panics.Error("view", r)
		}
	}()
	var data json.RawMessage
	ev := machines.Event{Data: &data}
	if err := json.Unmarshal(m.Data(), &ev); err != nil {
		return nil, err
	}
	ev.Data = nil
	next, err := f.view.Project(previous, streams.Header(m.Headers(), "ce-type"), ev, data)
	if err != nil || next == nil {
		return nil, err
	}
	return json.Marshal(next)
}
