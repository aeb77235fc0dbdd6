package consumers

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

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// damage writes over the last bytes of a string in the files of a stream, as a bad sector does, and starts the server again.
func (w *world) damage(stream, what string) {
	w.t.Helper()
	found := false
	require.NoError(w.t, filepath.WalkDir(w.dir, func(path string, _ os.DirEntry, err error) error {
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
	require.True(w.t, found, "%s has %q in its files", stream, what)
	require.NoError(w.t, w.server.Restart())
	w.eventually("the stream again", func() bool {
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		_, err := w.JS.Stream(ctx, stream)
		return err == nil
	})
}

// indexed gives the engine an index of each machine, of what its bucket holds now.
func (w *world) indexed() *world {
	w.t.Helper()
	w.indexes = map[string]*kv.Index{}
	for _, m := range w.Machines {
		ix := kv.NewIndex(w.JS, m.Plural, func(_ string, value []byte) (meta kv.Meta, err error) {
			return meta, json.Unmarshal(value, &meta)
		}, kv.Options{})
		w.also(ix.Run)
		<-ix.Ready()
		w.indexes[m.Name] = ix
	}
	return w
}

// A leader answers "no message found" for what its disk does not give. An entity whose value cannot be read is not one that
// was never created: nothing is written over what may be restored, and the others of its partition go on.
func TestADamagedValueIsNotAbsent(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.ask(toThing("a", "create", ""))
	w.ask(toThing("a", "add", `{"n":1234567}`))
	w.ask(toThing("b", "create", ""))
	w.stop()
	w.damage("KV_things", `"sum":1234567`)
	w.indexed().start()
	for _, cmd := range []streams.Command{toThing("a", "add", `{"n":1}`), toThing("a", "create", "")} {
		a := w.ask(cmd)
		require.NotNil(t, a.Refusal, "%s: %s", cmd.Name, a.Outcome)
		require.Equal(t, machines.CodeParked, a.Refusal.Code, cmd.Name)
	}
	require.Equal(t, machines.Applied, w.ask(toThing("b", "add", `{"n":1}`)).Outcome)
	other := w.neighbour("a")
	require.Equal(t, machines.Applied, w.ask(toThing(other, "create", "")).Outcome)
	require.Len(t, w.events("thing", "default.a"), 2, "nothing is told that did not happen")
}

// A value that cannot be read hides none that is lost, and is not taken for lost itself.
func TestALostValueBesideADamagedOne(t *testing.T) {
	t.Parallel()
	w, n := noted(t, thingMachine)
	w.start()
	for _, id := range []string{"damaged", "lost"} {
		w.ask(toThing(id, "create", ""))
	}
	w.ask(toThing("damaged", "add", `{"n":1234567}`))
	w.eventually("their events", func() bool { return len(w.stream(streams.EventStream, "instar.evt.thing.>")) == 3 })
	w.stop()
	w.damage("KV_things", `"sum":1234567`)
	values, err := w.JS.Stream(w.ctx, "KV_things")
	require.NoError(t, err)
	require.NoError(t, values.Purge(w.ctx, jetstream.WithPurgeSubject("$KV.things.default.lost")))
	w.indexed()
	ctx, cancel := context.WithCancel(w.ctx)
	w.engine, w.stopEngine = &Engine{Deps: w.Deps, Indexes: w.indexes, ReconcileAfter: time.Millisecond}, cancel
	w.engines.Go(func() { _ = w.engine.Run(ctx) })
	w.eventually("it is told", func() bool { return slices.Contains(w.events("thing", "default.lost"), "1 entity.reconciled") })
	require.Equal(t, 1, n.count("reconciled"))
	require.Len(t, w.events("thing", "default.damaged"), 2)
}

// A key whose answer cannot be read was used.
func TestADamagedAnswerIsNotAbsent(t *testing.T) {
	t.Parallel()
	for _, unreadable := range []bool{true, false} {
		w := setup(t, streams.Interval, thingMachine).start()
		w.ask(toThing("a", "create", ""))
		cmd := toThing("a", "add", `{"n":1000}`)
		cmd.ID = "once-upon"
		w.ask(cmd)
		w.ask(toThing("a", "add", `{"n":1}`))
		w.stop()
		if unreadable {
			w.damage("KV_idempotency", `"id":"once-upon"`)
		} else {
			bucket, err := w.JS.KeyValue(w.ctx, "idempotency")
			require.NoError(t, err)
			_, err = bucket.Put(w.ctx, streams.AnswerKey("thing", "default.a", cmd.ID), []byte(`{"id`))
			require.NoError(t, err)
		}
		w.empty(streams.CommandStream) // it does not remember the id
		w.start()
		a := w.ask(cmd)
		require.NotNil(t, a.Refusal)
		require.Equal(t, machines.CodeUnknown, a.Refusal.Code)
		require.Equal(t, 1001, w.sum("a"))
		w.stop()
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
	for _, profile := range []streams.Profile{streams.Interval, streams.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w := setup(t, profile, thingMachine)
			s, err := w.JS.Stream(w.ctx, streams.EventStream)
			require.NoError(t, err)
			config := s.CachedInfo().Config
			config.MaxMsgSize = 900
			_, err = w.JS.UpdateStream(w.ctx, config)
			require.NoError(t, err)
			n := w.tally()
			w.start()
			w.ask(toThing("a", "create", ""))
			long := toThing("a", "add", `{"n":1}`)
			long.ID, long.Actor, long.Reason = strings.Repeat("i", 200), strings.Repeat("a", 250), strings.Repeat("r", 250)
			for _, cmd := range []streams.Command{long, toThing("a", "add", `{"n":2}`), toThing(w.neighbour("a"), "create", "")} {
				require.Equal(t, machines.Applied, w.ask(cmd).Outcome)
			}
			w.eventually("a dead letter, and the event after it", func() bool {
				letters, err := w.dead().List(w.ctx, 0, 10)
				return err == nil && len(letters) == 1 && len(w.events("thing", "default.a")) == 2
			})
			require.Zero(t, n.restarts.Load())
		})
	}
}

// The stream of commands lost its end, and the clock that stamped it ran ahead: commands of now are not taken for those of then.
func TestAMarkOfALostHistoryThatIsAhead(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.ask(toThing("a", "create", ""))
	w.stop()
	e, revision := w.entity(thingMachine, "default.a")
	e.Mark, e.MarkedAt = 1000, time.Now().Add(time.Hour)
	data, err := json.Marshal(&e)
	require.NoError(t, err)
	bucket, err := w.JS.KeyValue(w.ctx, "things")
	require.NoError(t, err)
	_, err = bucket.Update(w.ctx, "default.a", data, revision)
	require.NoError(t, err)
	w.empty(streams.CommandStream)
	w.start()
	for range 5 {
		w.bare("a", "add", `{"n":1}`)
	}
	require.Equal(t, machines.Applied, w.ask(toThing("a", "add", `{"n":10}`)).Outcome)
	require.Equal(t, 15, w.sum("a"))
}
