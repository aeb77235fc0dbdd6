package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/ended"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// dropping runs an engine that drops what has ended a moment ago, at any command that says so.
func (w *world) dropping() *Engine {
	e := &Engine{Deps: w.Deps, Indexes: w.Indexes, ReconcileAfter: time.Hour, DropAfter: func(string) time.Duration { return time.Nanosecond }}
	w.Run(e.Run)
	return e
}

// marker is what the bucket has of a thing.
func (w *world) marker(id string) *streams.Message {
	w.T.Helper()
	m, err := kv.Read(w.Ctx, w.NC, "things", "default."+id)
	require.NoError(w.T, err)
	return m
}

func (w *world) isDropped(id string) bool { m := w.marker(id); return kv.Dropped(m) }

// closed is a thing that has ended, at version 3.
func (w *world) closed(id string) {
	w.T.Helper()
	w.Ask(consumertest.ToThing(id, "create", ""))
	w.Ask(consumertest.ToThing(id, "add", `{"n":7}`))
	w.Ask(consumertest.ToThing(id, "close", ""))
	w.Eventually("the events of "+id, func() bool { return len(w.Events("thing", "default."+id)) == 3 })
}

// What remains of an entity refuses what its end refuses, in memory and loaded anew, and its next life goes on above its versions, without
// anything to report.
func TestAnEndedEntityIsDropped(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		w, n := noted(t, consumertest.Things)
		w.dropping()
		w.closed("a")
		_, before := w.Entity(consumertest.Things, "default.a")
		require.Equal(t, machines.Ignored, w.Ask(consumertest.ToThing("a", machines.CommandDrop, "")).Outcome, "it is no transition")
		m := w.marker("a")
		require.True(t, kv.Dropped(m))
		require.Greater(t, m.Sequence, before)
		require.Equal(t, "94694400s", m.Headers().Get("Nats-TTL"), "three years and a day")
		e, err := consumertest.Things.DecodeAt("default.a", m.Data)
		require.NoError(t, err)
		require.Equal(t, "closed", e.State)
		require.EqualValues(t, 3, e.Version)
		require.NotContains(t, string(m.Data), `"data"`)
		_, err = w.Bucket("things").Get(w.Ctx, "default.a")
		require.Error(t, err, "readers of the bucket see that it is gone")
		if restarted {
			w.Stop()
			w.dropping()
		}
		require.Equal(t, machines.Ignored, w.Ask(consumertest.ToThing("a", machines.CommandDrop, "")).Outcome)
		require.Equal(t, m.Sequence, w.marker("a").Sequence, "once is enough")
		refused := w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
		require.Equal(t, machines.CodeTransition, refused.Refusal.Code)
		require.Equal(t, "closed", refused.State)
		born := w.Ask(consumertest.ToThing("a", "create", ""))
		require.EqualValues(t, 4, born.Version)
		require.Equal(t, machines.Ignored, w.Ask(consumertest.ToThing("a", machines.CommandDrop, "")).Outcome, "it lives")
		require.Zero(t, w.Sum("a"))
		w.CheckStory("a")
		require.Zero(t, n.Count("reconciled"), "%v", n.List)
		require.Zero(t, n.Count("restarted"), "%v", n.List)
	}
}

// What does not exist, lives, has ended too short a time ago or has other commands waiting is left alone.
func TestWhatIsNotDropped(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	e := &Engine{Deps: w.Deps, ReconcileAfter: time.Hour, DropAfter: func(string) time.Duration { return time.Hour }}
	w.Run(e.Run)
	w.closed("fresh")
	w.Ask(consumertest.ToThing("alive", "create", ""))
	for _, id := range []string{"fresh", "alive", "nobody"} {
		require.Equal(t, machines.Ignored, w.Ask(consumertest.ToThing(id, machines.CommandDrop, "")).Outcome)
	}
	require.False(t, w.isDropped("fresh"))
	require.False(t, w.isDropped("alive"))
	require.Nil(t, w.marker("nobody"))
	w.Stop()
	for _, name := range []string{machines.CommandDrop, "create"} { // both are in one batch
		_, err := w.Commands.Send(w.Ctx, consumertest.ToThing("fresh", name, ""))
		require.NoError(t, err)
	}
	w.dropping()
	require.Equal(t, "open", w.Reaches("fresh", "open").State)
	require.Equal(t, machines.Unchanged, w.Ask(consumertest.ToThing("fresh", "idle", "")).Outcome)
	require.False(t, w.isDropped("fresh"))
	w.CheckStory("fresh")
}

// A process may die behind each of the writes: of the marker, of each view, and before the ack. The command comes again, and does the rest.
func TestADropThatWasInterrupted(t *testing.T) {
	t.Parallel()
	m := service.Machine
	const key = "default.web"
	for stored := range len(m.Views) + 1 { // the marker, and so many views are gone already
		w := setup(t, embedded.Interval, m)
		w.start()
		w.Ask(createCommand("web"))
		w.Ask(publish.Command{Machine: m.Name, Key: key, Name: "purge", Actor: "test", Body: []byte(`{"force":true}`), Reason: "test"})
		e, revision := w.Entity(m, key)
		require.Equal(t, service.Deleted, e.State)
		w.Eventually("no commands", func() bool { return len(w.Stream(streams.CommandStream, w.Names.StoredOf(m.Name, key))) == 0 })
		w.Stop()
		for _, v := range m.Views[stored:] {
			require.NoError(t, w.Appender.Append(w.Ctx, []publish.Write{kv.Write(m.BucketOf(v), key, []byte(`{}`))})[0].Err)
		}
		sent, err := w.Commands.Send(w.Ctx, publish.Command{Machine: m.Name, Key: key, Name: machines.CommandDrop, Actor: "engine"})
		require.NoError(t, err)
		left := ended.Remains(m, e)
		left.Data, left.Mark, left.MarkedAt = nil, sent.Seq, time.Now().UTC().Add(time.Second)
		note, err := left.AppendJSON(nil)
		require.NoError(t, err)
		require.NoError(t, w.Appender.Append(w.Ctx, []publish.Write{kv.DropAt(m.Plural, key, note, revision, time.Hour)})[0].Err)
		w.dropping()
		w.Eventually("the end of the command", func() bool { return len(w.Stream(streams.CommandStream, w.Names.StoredOf(m.Name, key))) == 0 })
		for _, v := range m.Views {
			got, err := kv.Read(w.Ctx, w.NC, m.BucketOf(v), key)
			require.NoError(t, err)
			require.Nil(t, got, v.Name)
		}
		require.EqualValues(t, e.Version+1, w.Ask(createCommand("web")).Version)
	}
}

// Neither a command that was taken before and comes again, nor a process that should be dead, brings back what was dropped.
func TestWhatWasDroppedIsNotBroughtBack(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	w.dropping()
	w.closed("a")
	_, before := w.Entity(consumertest.Things, "default.a")
	w.Ask(consumertest.ToThing("a", machines.CommandDrop, ""))
	m := w.marker("a")
	for _, at := range []uint64{0, before} {
		r := w.Appender.Append(w.Ctx, []publish.Write{kv.WriteAt("things", "default.a", []byte(`{}`), at)})[0]
		require.ErrorIs(t, r.Err, publish.ErrConflict, "a zombie at revision %d", at)
	}
	w.Stop()
	late, err := w.Commands.Send(w.Ctx, consumertest.ToThing("a", "create", ""))
	require.NoError(t, err)
	e, err := consumertest.Things.DecodeAt("default.a", m.Data)
	require.NoError(t, err)
	e.Data, e.Mark, e.MarkedAt = nil, late.Seq, time.Now().UTC().Add(time.Second)
	note, err := e.AppendJSON(nil)
	require.NoError(t, err)
	require.NoError(t, w.Appender.Append(w.Ctx, []publish.Write{kv.DropAt("things", "default.a", note, m.Sequence, time.Hour)})[0].Err)
	w.dropping()
	w.Eventually("the end of the command", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	require.True(t, w.isDropped("a"))
	require.Len(t, w.Events("thing", "default.a"), 3)
}

// Indexes, the background passes and speculative creates know what was dropped, in a process that has just started as well.
func TestWhatWasDroppedIsNotMissed(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.dropping()
	w.closed("a")
	w.Ask(consumertest.ToThing("a", machines.CommandDrop, ""))
	w.Stop()
	ix := index.New(w.JS, "things", func(_ string, v []byte) (index.Meta, error) { return index.DescribeJSON(v) }, index.Options{})
	w.Also(ix.Run)
	<-ix.Ready()
	w.Indexes = &index.Map{}
	w.Indexes.Set("thing", ix)
	require.Zero(t, ix.Len())
	require.False(t, ix.Lacks("default.a"))
	e := w.dropping()
	w.Eventually("it runs", func() bool { return e.Live() > 0 })
	lacks, err := e.lacks(w.Ctx, consumertest.Things, "default.a")
	require.NoError(t, err)
	require.False(t, lacks)
	e.passes().Missing(context.Background(), consumertest.Things, ix)
	require.EqualValues(t, 4, w.Ask(consumertest.ToThing("a", "create", "")).Version)
	require.Zero(t, n.Count("reconciled"), "%v", n.List)
	require.Zero(t, n.Count("restarted"), "%v", n.List)
}
