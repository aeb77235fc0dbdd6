package consumers

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// errandMachine waits for its effect without a deadline.
var errandMachine = machines.Define(machines.Definition[thing]{
	Name: "errand", Plural: "errands", Doc: "For tests of effects that are given up.",
	States: []machines.State[thing]{{Name: "open"}, {Name: "failed", Failed: true, Terminal: true}, {Name: "done", Terminal: true}},
	Inputs: []machines.Command{{Name: "create", Birth: true}, {Name: "done", Report: true, Body: workBody{}}, {Name: "fail", Report: true, Body: machines.Failure{}}},
	Effects: []machines.Effect[thing]{{
		Name: "work", Done: "done", Failed: "fail", Payload: func(*machines.Tx[thing]) any { return workBody{} },
	}},
	Events: []machines.EventType{{Name: "errand.moved", Class: machines.ClassState}},
	Edges: []machines.Edge[thing]{
		{From: []string{machines.None}, On: "create", To: "open", Emit: []string{"errand.moved"}, Effects: []string{"work"}},
		{From: []string{"open"}, On: "done", To: "done", Emit: []string{"errand.moved"}},
		{From: []string{"open"}, On: "fail", To: "failed", Emit: []string{"errand.moved"}},
	},
})

func (w *world) errand(id string) string {
	w.t.Helper()
	e, _ := w.entity(errandMachine, "default."+id)
	return e.State
}

// More entities than tasks are done at a time have values that nobody can read. Their tasks go to the dead letters, and the
// task behind them is done; when the values are repaired, the letters are put back, and end as the others.
func TestTasksOfUnreadableEntitiesDoNotStarveTheirKind(t *testing.T) {
	t.Parallel()
	w, n := noted(t, errandMachine)
	w.start()
	bucket, err := w.JS.KeyValue(w.ctx, "errands")
	require.NoError(t, err)
	const broken = 20
	good := map[string][]byte{}
	for i := range broken {
		key := fmt.Sprintf("default.e-%d", i)
		w.ask(streams.Command{Machine: "errand", Key: key, Name: "create"})
		v, err := bucket.Get(w.ctx, key)
		require.NoError(t, err)
		good[key] = v.Value()
		_, err = bucket.Put(w.ctx, key, []byte("{"))
		require.NoError(t, err)
	}
	w.ask(streams.Command{Machine: "errand", Key: "default.well", Name: "create"})
	k := &worker{tries: map[string]int{}}
	w.also((&Workers{Deps: w.Deps, Performers: map[string]Performer{"errand": k}}).Run)
	w.eventually("the one behind them is done", func() bool { return w.errand("well") == "done" })
	var letters []streams.DeadLetter
	w.eventually("all letters", func() bool { letters, err = w.dead().List(w.ctx, 0, 100); return err == nil && len(letters) == broken })
	w.eventually("none is left", func() bool { return len(w.stream(streams.EffectStream, ">")) == 0 })
	require.Equal(t, broken, n.count("dead f"))
	for key, value := range good {
		_, err := bucket.Put(w.ctx, key, value)
		require.NoError(t, err)
	}
	for _, l := range letters {
		require.Equal(t, "fx-errand-work", l.Consumer)
		require.Contains(t, l.Reason, "cannot be decoded")
		require.NoError(t, w.dead().Redrive(w.ctx, l.Seq))
	}
	for i := range broken {
		id := fmt.Sprintf("e-%d", i)
		w.eventually(id, func() bool { return w.errand(id) == "done" })
	}
}

// The server says that there is no message for one that its disk does not give. The effect of an entity that is there is not
// acked for that.
func TestAnEntityThatCannotBeReadIsNotGone(t *testing.T) {
	t.Parallel()
	w, _ := attached(t, `jetstream: enabled, mappings: { "$JS.API.STREAM.MSG.GET.KV_errands": "fault.read" }`, errandMachine)
	sub, err := w.NC.Subscribe("fault.read", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	w.start()
	w.ask(streams.Command{Machine: "errand", Key: "default.a", Name: "create"})
	k := &worker{tries: map[string]int{}}
	w.also((&Workers{Deps: w.Deps, Performers: map[string]Performer{"errand": k}}).Run)
	w.eventually("it is given up, not forgotten", func() bool {
		letters, err := w.dead().List(w.ctx, 0, 10)
		return err == nil && len(letters) == 1 && letters[0].Key == "default.a"
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Empty(t, k.tries)
}
