package views

// From events to read models. serve resets the durable consumer of one view to its ack floor (open) and repeats batch: it takes events from stream EVENTS, groups them by entity,
// and for each entity fold reads the value in the view's bucket, applies Project of the table to the events that the value does not include yet ([consumers.Happened.In]), and writes it
// once. Then the batch is acked. An event that cannot be folded is logged and left out (skip).

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

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
	feed   consumers.Feed
	bucket *kv.Bucket[machines.Folded]

	failures map[string]int // times that the value of a key could not be read, one after the other
}

func (f *folder) serve(ctx context.Context) error {
	if err := f.open(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := f.batch(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) open(ctx context.Context) (err error) {
	if f.bucket, err = kv.Open(ctx, f.v.JS, f.v.Names.Bucket(f.m.BucketOf(f.view)), kv.JSON[machines.Folded]()); err != nil {
		return err
	}
	f.feed = consumers.Feed{Machine: f.m, Name: f.name, Doc: f.view.Doc, Subjects: f.subjects(), Batch: f.v.Batch}
	return f.feed.Open(ctx, &f.v.Deps)
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
func (f *folder) batch(ctx context.Context) error {
	all, err := f.feed.Next(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	var keys []string
	events := map[string][]consumers.Happened{}
	for _, ev := range all {
		if ev.Err != nil {
			f.skip("", []consumers.Happened{ev}, ev.Err)
			continue
		}
		if events[ev.Key] == nil {
			keys = append(keys, ev.Key)
		}
		events[ev.Key] = append(events[ev.Key], ev)
	}
	for _, key := range keys {
		if err := f.fold(ctx, key, events[key]); err != nil {
			return err
		}
	}
	return f.feed.Done(ctx, all, streams.BucketStream(f.m.BucketOf(f.view)))
}

// skip leaves events out of the view: the entity's own state does not depend on views.
func (f *folder) skip(key string, events []consumers.Happened, err error) {
	for _, ev := range events {
		f.v.Meter.Skipped(f.name)
		f.v.Log.Error("a view skips an event", "view", f.name, "key", key, "seq", ev.Seq, "error", err)
	}
}

// fold adds events of one entity to its view, which is read and written once. A value that cannot be read stops the view for a number of tries. When the bucket refuses the result, the
// events are folded one by one, and the one to blame is left out.
func (f *folder) fold(ctx context.Context, key string, events []consumers.Happened) error {
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
		if ev.In(&folded) {
			continue
		}
		value, err := f.project(ev.Msg, folded.Value)
		if err != nil {
			f.skip(key, []consumers.Happened{ev}, err)
			continue
		}
		dirty = true
		ev.Note(&folded)
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
func (f *folder) undropped(ctx context.Context, key string, events []consumers.Happened) ([]consumers.Happened, error) {
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
	return slices.DeleteFunc(slices.Clone(events), func(ev consumers.Happened) bool { return ev.Version <= e.Version }), nil
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
