package consumers

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

func (w *world) bucket(name string) jetstream.KeyValue {
	w.t.Helper()
	bucket, err := w.JS.KeyValue(w.ctx, name)
	require.NoError(w.t, err)
	return bucket
}

// What a bucket keeps of a key that was deleted is no value: purging it is the way out where a value cannot be repaired.
func TestADeletedValueIsAbsent(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	things, answers := w.bucket("things"), w.bucket(streams.IdempotencyBucket)
	for id, remove := range map[string]func(string) error{
		"purged":  func(key string) error { return things.Purge(w.ctx, key) },
		"deleted": func(key string) error { return things.Delete(w.ctx, key) },
	} {
		key := "default." + id
		w.ask(toThing(id, "create", ""))
		_, err := things.Put(w.ctx, key, []byte("{no json"))
		require.NoError(t, err)
		require.Equal(t, machines.CodeParked, w.ask(toThing(id, "add", `{"n":1}`)).Refusal.Code, id)
		require.NoError(t, remove(key))
		wanted, err := (&kind{w: &Workers{Deps: w.Deps}, m: thingMachine}).wanted(w.ctx, &machines.Task{Machine: "thing", Namespace: "default", ID: id, Effect: "work"})
		require.NoError(t, err)
		require.False(t, wanted)
		a := w.ask(toThing(id, "add", `{"n":1}`))
		require.Equal(t, machines.CodeNotFound, a.Refusal.Code, id)
		require.Zero(t, a.Revision, "of no value")
		require.Equal(t, machines.CodeNotFound, w.ask(toThing(id, machines.CommandRepair, `{"revision":1,"value":{}}`)).Refusal.Code, id)
		create := toThing(id, "create", "")
		create.Expect = "*"
		require.Equal(t, machines.CodePrecondition, w.ask(create).Refusal.Code, id)
		create.Expect = "0"
		a = w.ask(create)
		require.Equal(t, machines.Applied, a.Outcome, "%s: %v", id, a.Refusal)
		require.EqualValues(t, 2, a.Version, "above that of every event")

		add := toThing(id, "add", `{"n":1}`)
		add.ID = "key"
		w.ask(add)
		w.ask(toThing(id, "add", `{"n":1}`))
		require.NoError(t, answers.Purge(w.ctx, streams.AnswerKey("thing", key, "key")))
		w.stop()
		w.start()
		require.Equal(t, machines.Applied, w.ask(add).Outcome, "somebody has had its answer forgotten")
		require.Equal(t, 3, w.sum(id))
	}
}
