package consumers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Views folds events into the read models of all machines. Each view has a durable consumer of its own, and its own
// memory of what it has folded: the same event reaches every view that wants it, exactly once in effect, whatever
// happens to the others.
type Views struct {
	Deps
	Batch int // events taken at once; 0 is 512
}

// Run folds until ctx ends.
func (v *Views) Run(ctx context.Context) error {
	v.Deps = v.withDefaults()
	v.Batch = orDefault(v.Batch, 512)
	var all sync.WaitGroup
	for _, m := range v.Machines {
		for _, view := range m.Views {
			f := &folder{v: v, m: m, view: view, name: "view-" + m.Name + "-" + view.Name}
			all.Go(func() { f.v.keep(ctx, f.name, f.serve) })
		}
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
}

func (f *folder) serve(ctx context.Context) error {
	var err error
	if f.bucket, err = kv.Open(ctx, f.v.JS, f.v.Names.Bucket(f.m.BucketOf(f.view)), kv.JSON[machines.Folded]()); err != nil {
		return err
	}
	stream := f.v.Names.Stream(streams.EventStream)
	cons, err := f.v.JS.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: f.name, Description: f.view.Doc, FilterSubjects: f.subjects(),
		AckPolicy: jetstream.AckAllPolicy, AckWait: time.Minute, MaxAckPending: 4 * f.v.Batch, MaxDeliver: -1,
	})
	if err != nil {
		return fmt.Errorf("cannot open consumer %s: %w", f.name, err)
	}
	// What was taken and not folded comes first: a later event would let the view take it for folded.
	if _, err := f.v.JS.ResetConsumer(ctx, stream, f.name); err != nil {
		return fmt.Errorf("cannot reset consumer %s: %w", f.name, err)
	}
	f.last = 0
	for ctx.Err() == nil {
		if err := f.batch(ctx, cons); err != nil {
			return err
		}
	}
	return nil
}

// subjects matches the view's events of all entities.
func (f *folder) subjects() []string {
	key := "*.*"
	if f.m.Parent != "" {
		key = "*.*.*"
	}
	var subjects []string
	for _, name := range f.view.Events {
		t, _ := f.m.Event(name) // Define has checked it
		subjects = append(subjects, f.v.Names.Event(f.m.Name, key, t.Subject))
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
	changed := map[string]*folding{}
	for _, m := range msgs {
		if err := f.fold(ctx, m, changed); err != nil {
			return err
		}
	}
	for key, c := range changed {
		if !c.dirty {
			continue
		}
		if _, err := f.bucket.Put(ctx, key, c.Folded, c.revision); err != nil {
			return err
		}
	}
	return msgs[len(msgs)-1].DoubleAck(ctx)
}

type folding struct {
	machines.Folded
	revision uint64
	dirty    bool
}

// fold takes one event into its view. An event that cannot be folded is logged and left out: the entity's own state
// does not depend on views.
func (f *folder) fold(ctx context.Context, m jetstream.Msg, changed map[string]*folding) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Consumer != f.last+1 {
		return fmt.Errorf("delivery %d follows %d: another process takes the events of the view", meta.Sequence.Consumer, f.last)
	}
	f.last = meta.Sequence.Consumer
	addr, err := f.v.Names.ParseEvent(m.Subject(), f.m.Parent != "")
	if err != nil {
		f.v.Log.Error("an event is left out of a view", "view", f.name, "seq", meta.Sequence.Stream, "error", err)
		return nil
	}
	c := changed[addr.Key]
	if c == nil {
		c = &folding{}
		entry, err := f.bucket.Get(ctx, addr.Key)
		var corrupt *kv.CorruptError
		switch {
		case err == nil:
			c.Folded, c.revision = entry.Value, entry.Revision
		case errors.As(err, &corrupt):
			f.v.Log.Error("a value of a view cannot be read; it is begun anew", "view", f.name, "key", addr.Key, "error", err)
			c.revision = corrupt.Revision
		case !errors.Is(err, kv.ErrNotFound):
			return err
		}
		changed[addr.Key] = c
	}
	if meta.Sequence.Stream <= c.Seq {
		return nil
	}
	value, at, err := f.project(m, c.Value)
	if err != nil {
		f.v.Log.Error("an event is left out of a view", "view", f.name, "key", addr.Key, "seq", meta.Sequence.Stream, "error", err)
		return nil
	}
	c.Seq, c.At, c.dirty = meta.Sequence.Stream, at, true
	if value != nil {
		c.Value = value
	}
	return nil
}

func (f *folder) project(m jetstream.Msg, previous json.RawMessage) (value json.RawMessage, at time.Time, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the view panics: %v", r)
		}
	}()
	var data json.RawMessage
	ev := machines.Event{Data: &data}
	if err := json.Unmarshal(m.Data(), &ev); err != nil {
		return nil, at, err
	}
	name := streams.Header(m.Headers(), "ce-type")
	ev.Data = nil
	next, err := f.view.Project(previous, name, ev, data)
	if err != nil || next == nil {
		return nil, ev.Time, err
	}
	value, err = json.Marshal(next)
	return value, ev.Time, err
}
