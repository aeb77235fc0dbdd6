package effects

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// More entities than tasks are done at a time have values that nobody can read. Their tasks go to the dead letters, and the
// task behind them is done; when the values are repaired, the letters are put back, and end as the others.
func TestTasksOfUnreadableEntitiesDoNotStarveTheirKind(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Errands)
	w.start()
	bucket, err := w.JS.KeyValue(w.Ctx, "errands")
	require.NoError(t, err)
	const broken = 20
	good := map[string][]byte{}
	for i := range broken {
		key := fmt.Sprintf("default.e-%d", i)
		w.Ask(publish.Command{Machine: "errand", Key: key, Name: "create"})
		v, err := bucket.Get(w.Ctx, key)
		require.NoError(t, err)
		good[key] = v.Value()
		_, err = bucket.Put(w.Ctx, key, []byte("{"))
		require.NoError(t, err)
	}
	w.Ask(publish.Command{Machine: "errand", Key: "default.well", Name: "create"})
	k := consumertest.NewWorker()
	w.Also((&Workers{Deps: w.Deps, Performer: ByMachine{"errand": k}.Of}).Run)
	w.Eventually("the one behind them is done", func() bool { return w.Errand("well") == "done" })
	var letters []publish.DeadLetter
	w.Eventually("all letters", func() bool {
		letters, err = w.DeadLetters().List(w.Ctx, 0, 100)
		return err == nil && len(letters) == broken
	})
	w.Eventually("none is left", func() bool { return len(w.Stream(streams.EffectStream, ">")) == 0 })
	require.Equal(t, broken, n.Count("dead f"))
	for key, value := range good {
		_, err := bucket.Put(w.Ctx, key, value)
		require.NoError(t, err)
	}
	for _, l := range letters {
		require.Equal(t, "fx-errand-work", l.Consumer)
		require.Contains(t, l.Reason, "cannot be decoded")
		require.NoError(t, w.DeadLetters().Redrive(w.Ctx, l.Seq))
	}
	for i := range broken {
		id := fmt.Sprintf("e-%d", i)
		w.Eventually(id, func() bool { return w.Errand(id) == "done" })
	}
}

// The server says that there is no message for one that its disk does not give. The effect of an entity that is there is not
// acked for that.
func TestAnEntityThatCannotBeReadIsNotGone(t *testing.T) {
	t.Parallel()
	w, _ := attached(t, `jetstream: enabled, mappings: { "$JS.API.STREAM.MSG.GET.KV_errands": "fault.read" }`, consumertest.Errands)
	sub, err := w.NC.Subscribe("fault.read", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	w.start()
	w.Ask(publish.Command{Machine: "errand", Key: "default.a", Name: "create"})
	k := consumertest.NewWorker()
	w.Also((&Workers{Deps: w.Deps, Performer: ByMachine{"errand": k}.Of}).Run)
	w.Eventually("it is given up, not forgotten", func() bool {
		letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
		return err == nil && len(letters) == 1 && letters[0].Key == "default.a"
	})
	k.Mu.Lock()
	defer k.Mu.Unlock()
	require.Empty(t, k.Tries)
}
