package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/ended"
	"github.com/bcc94042/instar/consumers/reconcile"
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
	w.acked() // what has others in the stream is not dropped
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

// A process may die behind the write of the marker and before the ack. The command comes again, and there is nothing left to do.
func TestADropThatWasInterrupted(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.closed("a")
	e, revision := w.Entity(consumertest.Things, "default.a")
	w.Eventually("no commands", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	w.Stop()
	sent, err := w.Commands.Send(w.Ctx, consumertest.ToThing("a", machines.CommandDrop, ""))
	require.NoError(t, err)
	left := ended.Remains(consumertest.Things, e, revision)
	left.Data, left.Mark, left.MarkedAt = nil, sent.Seq, time.Now().UTC().Add(time.Second)
	note, err := left.AppendJSON(nil)
	require.NoError(t, err)
	r := w.Appender.Append(w.Ctx, []publish.Write{kv.DropAt("things", "default.a", note, revision, time.Hour)})[0]
	require.NoError(t, r.Err)
	w.dropping()
	w.Eventually("the end of the command", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	require.Equal(t, r.Seq, w.marker("a").Sequence)
	require.EqualValues(t, e.Version+1, w.Ask(consumertest.ToThing("a", "create", "")).Version)
	w.CheckStory("a")
}

// The views of an entity are of no concern to its partition: where they cannot be removed, it is dropped all the same, and others go on.
func TestADropWithoutAView(t *testing.T) {
	t.Parallel()
	m := service.Machine
	w, n := noted(t, m)
	w.dropping()
	w.Ask(createCommand("web"))
	w.Ask(publish.Command{Machine: m.Name, Key: "default.web", Name: "purge", Actor: "test", Body: []byte(`{"force":true}`), Reason: "test"})
	w.Eventually("no commands", func() bool { return len(w.Stream(streams.CommandStream, w.Names.StoredOf(m.Name, "default.web"))) == 0 })
	require.NoError(t, w.JS.DeleteStream(w.Ctx, streams.BucketStream(m.BucketOf(m.Views[0]))))
	require.Equal(t, machines.Ignored, w.Ask(publish.Command{Machine: m.Name, Key: "default.web", Name: machines.CommandDrop, Actor: "engine"}).Outcome)
	got, err := kv.Read(w.Ctx, w.NC, m.Plural, "default.web")
	require.NoError(t, err)
	require.True(t, kv.Dropped(got))
	w.Eventually("its command is acked", func() bool { return len(w.Stream(streams.CommandStream, w.Names.StoredOf(m.Name, "default.web"))) == 0 })
	require.Zero(t, n.Count("restarted p"), "%v", n.List)
}

// A bucket refuses the marker, as one that takes no messages with a life: the value stays, the command is ignored, and neither the entity nor its neighbours wait.
func TestABucketThatRefusesADrop(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	bucket, err := w.JS.Stream(w.Ctx, "KV_things")
	require.NoError(t, err)
	config := bucket.CachedInfo().Config
	require.NoError(t, w.JS.DeleteStream(w.Ctx, config.Name))
	config.AllowMsgTTL = false
	_, err = w.JS.CreateStream(w.Ctx, config)
	require.NoError(t, err)
	w.dropping()
	w.closed("a")
	_, before := w.Entity(consumertest.Things, "default.a")
	dropped := w.Ask(consumertest.ToThing("a", machines.CommandDrop, ""))
	require.Equal(t, machines.Ignored, dropped.Outcome)
	require.Equal(t, before, dropped.Revision)
	w.Eventually("the ack", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	require.False(t, w.isDropped("a"))
	require.Equal(t, 7, w.Sum("a"))
	require.Equal(t, 1, n.Count("drop failed thing"))
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing(w.neighbour("a"), "create", "")).Outcome)
	require.Equal(t, "closed", w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)).Refusal.State)
	require.EqualValues(t, 4, w.Ask(consumertest.ToThing("a", "create", "")).Version)
	w.CheckStory("a")
	require.Zero(t, n.Count("restarted p"), "%v", n.List)
}

// A drop is no transition: who has seen the value that it replaces has seen all, and may create the next life by its revision as well as by that of the marker, but not
// by those of before.
func TestTheRevisionBeforeADropIsAccepted(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		w := setup(t, embedded.Interval, consumertest.Things)
		w.dropping()
		create := func(id string, revision uint64) *machines.Refusal {
			c := consumertest.ToThing(id, "create", "")
			c.Expect = fmt.Sprint(revision)
			return w.Ask(c).Refusal
		}
		for _, id := range []string{"a", "b"} {
			w.closed(id)
			_, seen := w.Entity(consumertest.Things, "default."+id)
			w.Ask(consumertest.ToThing(id, machines.CommandDrop, ""))
			if restarted {
				w.Stop()
				w.dropping()
			}
			require.Equal(t, machines.CodePrecondition, create(id, seen-1).Code)
			if id == "b" {
				seen = w.marker("b").Sequence
			}
			require.Nil(t, create(id, seen))
			require.Equal(t, machines.CodePrecondition, create(id, seen).Code, "that was a transition")
			e, _ := w.Entity(consumertest.Things, "default."+id)
			require.Zero(t, e.Replaced)
		}
	}
}

// What is found of a dropped entity when it is loaded leaves it dropped: it is not listed again.
func TestAMarkerThatDisagreesWithItsEventsStaysOne(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.dropping()
	w.closed("a")
	w.Ask(consumertest.ToThing("a", machines.CommandDrop, ""))
	w.Stop()
	m := &nats.Msg{Subject: "instar.evt.thing.default.a.thing.opened", Data: []byte(`{"version":9}`), Header: nats.Header{}}
	streams.CloudEvent(m, "thing/default.a/9/0", "/instar/thing/default.a", "thing.opened", "default.a", time.Now())
	w.Publish(m)
	w.dropping()
	require.Equal(t, machines.CodeTransition, w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)).Refusal.Code)
	w.Eventually("it is told", func() bool { return n.Count("reconciled thing "+consumers.ProblemValueOlder) == 1 })
	w.Eventually("the marker", func() bool {
		e, err := consumertest.Things.DecodeAt("default.a", w.marker("a").Data)
		return err == nil && e.Version == 10
	})
	require.True(t, w.isDropped("a"))
	var note map[string]any
	require.NoError(t, json.Unmarshal(w.marker("a").Data, &note))
	require.NotContains(t, note, "data")
	require.NotContains(t, note, "replaced", "nobody has seen this version")
	require.EqualValues(t, 11, w.Ask(consumertest.ToThing("a", "create", "")).Version)
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
	w.Eventually("its events", func() bool { return len(w.Events("thing", "default.a")) >= 3 })
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
	lacks, err := e.lacks(w.Ctx, consumertest.Things, "default.a", reconcile.History{})
	require.NoError(t, err)
	require.False(t, lacks)
	e.passes().Missing(context.Background(), consumertest.Things, ix)
	require.EqualValues(t, 4, w.Ask(consumertest.ToThing("a", "create", "")).Version)
	require.Zero(t, n.Count("reconciled"), "%v", n.List)
	require.Zero(t, n.Count("restarted"), "%v", n.List)
}
