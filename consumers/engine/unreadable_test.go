package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// damage writes over the last bytes of a string in the files of a stream, as a bad sector does, and starts the server again.
func (w *world) damage(stream, what string) {
	w.T.Helper()
	found := false
	require.NoError(w.T, filepath.WalkDir(w.Dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".blk" || filepath.Base(filepath.Dir(filepath.Dir(path))) != stream {
			return err
		}
		b, err := os.ReadFile(path)
		if i := bytes.Index(b, []byte(what)); err == nil && i >= 0 {
			found = true
			copy(b[i+len(what)-3:], "###")
			err = os.WriteFile(path, b, 0o600)
		}
		return err
	}))
	require.True(w.T, found, "%s has %q in its files", stream, what)
	require.NoError(w.T, w.Server.Restart())
	w.Eventually("the stream again", func() bool {
		ctx, cancel := context.WithTimeout(w.Ctx, time.Second)
		defer cancel()
		_, err := w.JS.Stream(ctx, stream)
		return err == nil
	})
}

// indexed gives the engine an index of each machine, of what its bucket holds now.
func (w *world) indexed() *world {
	w.T.Helper()
	w.Indexes = &index.Map{}
	for _, m := range w.Machines.All() {
		ix := index.New(w.JS, m.Plural, func(_ string, value []byte) (meta index.Meta, err error) {
			return meta, json.Unmarshal(value, &meta)
		}, index.Options{})
		w.Also(ix.Run)
		<-ix.Ready()
		w.Indexes.Set(m.Name, ix)
	}
	return w
}

// A leader answers "no message found" for what its disk does not give. An entity whose value cannot be read is not one that
// was never created: nothing is written over what may be restored, and the others of its partition go on.
func TestADamagedValueIsNotAbsent(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1234567}`))
	w.Ask(consumertest.ToThing("b", "create", ""))
	w.Stop()
	w.damage("KV_things", `"sum":1234567`)
	w.indexed().start()
	for _, cmd := range []publish.Command{consumertest.ToThing("a", "add", `{"n":1}`), consumertest.ToThing("a", "create", "")} {
		a := w.Ask(cmd)
		require.NotNil(t, a.Refusal, "%s: %s", cmd.Name, a.Outcome)
		require.Equal(t, machines.CodeParked, a.Refusal.Code, cmd.Name)
	}
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("b", "add", `{"n":1}`)).Outcome)
	other := w.neighbour("a")
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing(other, "create", "")).Outcome)
	w.Told("thing", "default.a", "1 thing.created", "2 thing.added") // nothing is told that did not happen
}

// A value that cannot be read hides none that is lost, and is not taken for lost itself.
func TestALostValueBesideADamagedOne(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	for _, id := range []string{"damaged", "lost"} {
		w.Ask(consumertest.ToThing(id, "create", ""))
	}
	w.Ask(consumertest.ToThing("damaged", "add", `{"n":1234567}`))
	w.Eventually("their events", func() bool { return len(w.Stream(streams.EventStream, "instar.evt.thing.>")) == 3 })
	w.Stop()
	w.damage("KV_things", `"sum":1234567`)
	values, err := w.JS.Stream(w.Ctx, "KV_things")
	require.NoError(t, err)
	require.NoError(t, values.Purge(w.Ctx, jetstream.WithPurgeSubject("$KV.things.default.lost")))
	w.indexed()
	w.Run((&Engine{Deps: w.Deps, Indexes: w.Indexes, ReconcileAfter: time.Millisecond}).Run)
	w.Eventually("it is told", func() bool { return slices.Contains(w.Events("thing", "default.lost"), "1 entity.reconciled") })
	require.Equal(t, 1, n.Count("reconciled"))
	require.Len(t, w.Events("thing", "default.damaged"), 2)
}

// A key whose answer cannot be read was used.
func TestADamagedAnswerIsNotAbsent(t *testing.T) {
	t.Parallel()
	for _, unreadable := range []bool{true, false} {
		w := setup(t, embedded.Interval, consumertest.Things).start()
		w.Ask(consumertest.ToThing("a", "create", ""))
		cmd := consumertest.ToThing("a", "add", `{"n":1000}`)
		cmd.ID = "once-upon"
		w.Ask(cmd)
		w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
		w.Stop()
		if unreadable {
			w.damage("KV_idempotency", `"id":"once-upon"`)
		} else {
			bucket, err := w.JS.KeyValue(w.Ctx, "idempotency")
			require.NoError(t, err)
			_, err = bucket.Put(w.Ctx, streams.AnswerKey("thing", "default.a", cmd.ID), []byte(`{"id`))
			require.NoError(t, err)
		}
		w.Empty(streams.CommandStream) // it does not remember the id
		w.start()
		a := w.Ask(cmd)
		require.NotNil(t, a.Refusal)
		require.Equal(t, machines.CodeUnknown, a.Refusal.Code)
		require.Equal(t, 1001, w.Sum("a"))
		w.Stop()
	}
}

// neighbour is the id of an entity that does not exist, in the partition of another one.
func (w *world) neighbour(id string) string {
	for n := 0; ; n++ {
		if other := fmt.Sprint("near-", n); streams.Partition("thing", "default."+other) == streams.Partition("thing", "default."+id) {
			return other
		}
	}
}

// An event that its stream never takes becomes a dead letter; those behind it and the others of the partition go on.
func TestAnEventThatIsRefusedForGood(t *testing.T) {
	t.Parallel()
	for _, profile := range []embedded.Profile{embedded.Interval, embedded.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w := setup(t, profile, consumertest.Things)
			s, err := w.JS.Stream(w.Ctx, streams.EventStream)
			require.NoError(t, err)
			config := s.CachedInfo().Config
			config.MaxMsgSize = 900
			_, err = w.JS.UpdateStream(w.Ctx, config)
			require.NoError(t, err)
			n := w.tally()
			w.start()
			w.Ask(consumertest.ToThing("a", "create", ""))
			long := consumertest.ToThing("a", "add", `{"n":1}`)
			long.ID, long.Actor, long.Reason = strings.Repeat("i", 200), strings.Repeat("a", 250), strings.Repeat("r", 250)
			for _, cmd := range []publish.Command{long, consumertest.ToThing("a", "add", `{"n":2}`), consumertest.ToThing(w.neighbour("a"), "create", "")} {
				require.Equal(t, machines.Applied, w.Ask(cmd).Outcome)
			}
			w.Eventually("a dead letter, and the event after it", func() bool {
				letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
				return err == nil && len(letters) == 1 && len(w.Events("thing", "default.a")) == 2
			})
			require.Zero(t, n.restarts.Load())
		})
	}
}

// marked stores the thing a as one whose last command had a sequence and a time.
func (w *world) marked(mark uint64, at time.Time) {
	e, revision := w.Entity(consumertest.Things, "default.a")
	e.Mark, e.MarkedAt = mark, at
	data, err := json.Marshal(&e)
	require.NoError(w.T, err)
	bucket, err := w.JS.KeyValue(w.Ctx, "things")
	require.NoError(w.T, err)
	_, err = bucket.Update(w.Ctx, "default.a", data, revision)
	require.NoError(w.T, err)
}

// lastCommand is the last sequence of the stream of commands.
func (w *world) lastCommand() uint64 {
	s, err := w.JS.Stream(w.Ctx, streams.CommandStream)
	require.NoError(w.T, err)
	return s.CachedInfo().State.LastSeq
}

// The stream of commands lost its end, and the clock that stamped it ran ahead: commands of now are not taken for those of then.
func TestAMarkOfALostHistoryThatIsAhead(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Stop()
	w.marked(1000, time.Now().Add(time.Hour))
	w.Empty(streams.CommandStream)
	w.start()
	for range 5 {
		w.bare("a", "add", `{"n":1}`)
	}
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("a", "add", `{"n":10}`)).Outcome)
	require.Equal(t, 15, w.Sum("a"))
}

// The stream of commands lost its end, and what it was sent since has the sequences of then, before anybody looks: none of it is taken for what was taken then, whatever the clock says.
func TestCommandsOfALostHistorysSequencesAreNew(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Fsync, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Eventually("acks", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	w.Stop()
	w.marked(w.lastCommand()+2, time.Now().Add(time.Hour))
	require.NoError(t, w.Server.Restart())
	w.Eventually("a connection", w.NC.IsConnected)
	for i := range 4 {
		_, err := w.Commands.Send(w.Ctx, publish.Command{Machine: "thing", Key: "default.a", Name: "add", Actor: "test", ID: fmt.Sprint("k", i), Body: []byte(`{"n":1}`)})
		require.NoError(t, err)
	}
	w.start()
	w.Eventually("acks", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	require.Equal(t, 4, w.Sum("a"), "accepted commands are applied")

	_, known := w.Server.EndAtStart("KV_things")
	require.True(t, known)
	require.NoError(t, w.JS.DeleteStream(w.Ctx, "KV_things"))
	_, known = w.Server.EndAtStart("KV_things")
	require.False(t, known, "a bucket that is made anew has revisions that the one before had")
}

// What the stream of commands still has of then was taken then: it is not taken again.
func TestCommandsBeforeALostEndAreNotTakenAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Fsync, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Eventually("acks", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	w.Stop()
	w.bare("a", "add", `{"n":1}`)
	w.marked(w.lastCommand()+1, time.Now()) // it took this one, and the next, which the stream has lost
	require.NoError(t, w.Server.Restart())
	w.Eventually("a connection", w.NC.IsConnected)
	w.start()
	w.Eventually("acks", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	require.Zero(t, w.Sum("a"))
}
