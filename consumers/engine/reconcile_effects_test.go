package engine

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// attempts are those of the tasks of a thing that its stream has.
func (w *world) attempts(id string) (list []string) {
	w.T.Helper()
	for _, m := range w.Stream(streams.EffectStream, w.Names.Effect("thing", "work", "default."+id)) {
		var t machines.Task
		require.NoError(w.T, json.Unmarshal(m.Data, &t))
		list = append(list, t.Attempt)
	}
	return list
}

// All but EFFECTS lose a version, which is made again: its effect is another one, though the stream has one of the same version.
func TestAnEffectOfALostVersionHidesNoOther(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	bucket, err := w.JS.KeyValue(w.Ctx, "things")
	require.NoError(t, err)
	older, err := bucket.Get(w.Ctx, "default.a")
	require.NoError(t, err)
	w.Ask(consumertest.ToThing("a", "work", `{"how":"well"}`))
	w.Eventually("its effect", func() bool { return len(w.attempts("a")) == 1 })
	w.Eventually("its events", func() bool { return len(w.Events("thing", "default.a")) == 2 })
	w.Stop()
	_, err = bucket.Put(w.Ctx, "default.a", older.Value())
	require.NoError(t, err)
	events, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(t, err)
	require.NoError(t, events.DeleteMsg(w.Ctx, 2))
	w.Empty(streams.CommandStream)
	w.start()
	require.EqualValues(t, 2, w.Ask(consumertest.ToThing("a", "work", `{"how":"well"}`)).Version)
	e, _ := w.Entity(consumertest.Things, "default.a")
	w.Eventually("its effect", func() bool { l := w.attempts("a"); return len(l) == 2 && l[1] == e.Effects["work"].ID })
	w.withWorkers()
	w.Reaches("a", "open")
}

// What is there of an older attempt, a task or a result, does not hide that the task under way is lost.
func TestALostEffectIsFoundBehindAnOlderAttempt(t *testing.T) {
	t.Parallel()
	for _, older := range []string{"task", "result"} {
		t.Run(older, func(t *testing.T) {
			t.Parallel()
			w := setup(t, embedded.Interval, consumertest.Things).start()
			w.Ask(consumertest.ToThing("a", "create", ""))
			w.Ask(consumertest.ToThing("a", "work", `{"how":"well"}`))
			w.Eventually("the first", func() bool { return len(w.attempts("a")) == 1 })
			w.Ask(consumertest.ToThing("a", "done", `{"data":{"how":"y"}}`))
			w.Ask(consumertest.ToThing("a", "work", `{"how":"well"}`))
			w.Eventually("the second", func() bool { return len(w.attempts("a")) == 2 })
			w.Stop()
			first := w.attempts("a")[0]
			effects, err := w.JS.Stream(w.Ctx, streams.EffectStream)
			require.NoError(t, err)
			require.NoError(t, effects.DeleteMsg(w.Ctx, 2))
			w.bare("a", "idle", "")
			if older == "result" {
				require.NoError(t, effects.DeleteMsg(w.Ctx, 1))
				w.bare("a", "done", `{"attempt":"`+first+`","data":{"how":"late"}}`)
			}
			w.start()
			e, _ := w.Entity(consumertest.Things, "default.a")
			w.Eventually("it is sent again", func() bool { l := w.attempts("a"); return len(l) > 0 && l[len(l)-1] == e.Effects["work"].ID })
			w.withWorkers()
			w.Reaches("a", "open")
		})
	}
}
