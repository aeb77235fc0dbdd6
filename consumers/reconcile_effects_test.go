package consumers

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// attempts are those of the tasks of a thing that its stream has.
func (w *world) attempts(id string) (list []string) {
	w.t.Helper()
	for _, m := range w.stream(streams.EffectStream, w.Names.Effect("thing", "work", "default."+id)) {
		var t machines.Task
		require.NoError(w.t, json.Unmarshal(m.Data, &t))
		list = append(list, t.Attempt)
	}
	return list
}

// All but EFFECTS lose a version, which is made again: its effect is another one, though the stream has one of the same version.
func TestAnEffectOfALostVersionHidesNoOther(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.ask(toThing("a", "create", ""))
	bucket, err := w.JS.KeyValue(w.ctx, "things")
	require.NoError(t, err)
	older, err := bucket.Get(w.ctx, "default.a")
	require.NoError(t, err)
	w.ask(toThing("a", "work", `{"how":"well"}`))
	w.eventually("its effect", func() bool { return len(w.attempts("a")) == 1 })
	w.eventually("its events", func() bool { return len(w.events("thing", "default.a")) == 2 })
	w.stop()
	_, err = bucket.Put(w.ctx, "default.a", older.Value())
	require.NoError(t, err)
	events, err := w.JS.Stream(w.ctx, streams.EventStream)
	require.NoError(t, err)
	require.NoError(t, events.DeleteMsg(w.ctx, 2))
	w.empty(streams.CommandStream)
	w.start()
	require.EqualValues(t, 2, w.ask(toThing("a", "work", `{"how":"well"}`)).Version)
	e, _ := w.entity(thingMachine, "default.a")
	w.eventually("its effect", func() bool { l := w.attempts("a"); return len(l) == 2 && l[1] == e.Effects["work"].ID })
	w.withWorkers()
	w.reaches("a", "open")
}

// What is there of an older attempt, a task or a result, does not hide that the task under way is lost.
func TestALostEffectIsFoundBehindAnOlderAttempt(t *testing.T) {
	t.Parallel()
	for _, older := range []string{"task", "result"} {
		t.Run(older, func(t *testing.T) {
			t.Parallel()
			w := setup(t, streams.Interval, thingMachine).start()
			w.ask(toThing("a", "create", ""))
			w.ask(toThing("a", "work", `{"how":"well"}`))
			w.eventually("the first", func() bool { return len(w.attempts("a")) == 1 })
			w.ask(toThing("a", "done", `{"data":{"how":"y"}}`))
			w.ask(toThing("a", "work", `{"how":"well"}`))
			w.eventually("the second", func() bool { return len(w.attempts("a")) == 2 })
			w.stop()
			first := w.attempts("a")[0]
			effects, err := w.JS.Stream(w.ctx, streams.EffectStream)
			require.NoError(t, err)
			require.NoError(t, effects.DeleteMsg(w.ctx, 2))
			w.bare("a", "idle", "")
			if older == "result" {
				require.NoError(t, effects.DeleteMsg(w.ctx, 1))
				w.bare("a", "done", `{"attempt":"`+first+`","data":{"how":"late"}}`)
			}
			w.start()
			e, _ := w.entity(thingMachine, "default.a")
			w.eventually("it is sent again", func() bool { l := w.attempts("a"); return len(l) > 0 && l[len(l)-1] == e.Effects["work"].ID })
			w.withWorkers()
			w.reaches("a", "open")
		})
	}
}
