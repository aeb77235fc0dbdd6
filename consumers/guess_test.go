package consumers

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// empty are indexes that never have what a bucket has: each guess that can be wrong is.
func (w *world) empty() map[string]*kv.Index {
	w.t.Helper()
	_, err := streams.Ensure(w.ctx, w.JS, streams.Plan{States: []string{"nothing"}})
	require.NoError(w.t, err)
	all := map[string]*kv.Index{}
	for _, m := range w.Machines {
		ix := kv.NewIndex(w.JS, "nothing", func(string, []byte) (kv.Meta, error) { return kv.Meta{}, nil }, kv.Options{})
		w.also(ix.Run)
		select {
		case <-ix.Ready():
		case <-w.ctx.Done():
		}
		all[m.Name] = ix
	}
	return all
}

func (w *world) create(key, id string) machines.Answer {
	w.t.Helper()
	return w.ask(streams.Command{Machine: "thing", Key: "default." + key, Name: "create", ID: id, Actor: "test"})
}

func TestAWrongGuessChangesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.OS, thingMachine)
	w.indexes = w.empty()
	w.start()
	first := w.create("a", "one")
	require.Equal(t, machines.Applied, first.Outcome)
	require.Equal(t, machines.Applied, w.ask(streams.Command{Machine: "thing", Key: "default.a", Name: "add", Body: []byte(`{"n":3}`)}).Outcome)
	_, before := w.entity(thingMachine, "default.a")

	w.stop()
	w.start() // it remembers nothing
	again := w.create("a", "two")
	require.Equal(t, machines.Refused, again.Outcome)
	require.Equal(t, machines.CodeExists, again.Refusal.Code)
	require.Equal(t, "open", again.State)
	_, after := w.entity(thingMachine, "default.a")
	require.Equal(t, before, after)
	require.Equal(t, []string{"1 thing.created", "2 thing.added", "2 command.refused"}, w.events("thing", "default.a"))
	require.Equal(t, machines.Applied, w.ask(streams.Command{Machine: "thing", Key: "default.a", Name: "close"}).Outcome)
}

func TestAWrongGuessKnowsTheCommandAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.OS, thingMachine)
	w.indexes = w.empty()
	w.start()
	first := w.create("a", "one")
	w.stop()
	purge(t, w) // so that the stream takes the same id again
	w.start()
	again := w.create("a", "one")
	require.Equal(t, first.Version, again.Version)
	require.Equal(t, machines.Applied, again.Outcome)
	require.True(t, again.Duplicate)
	require.Equal(t, []string{"1 thing.created"}, w.events("thing", "default.a"))
}

// What is refused leads to no commit that finds out: the entity is looked up first.
func TestAGuessIsNoReasonToRefuse(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.OS, thingMachine)
	w.indexes = w.empty()
	w.start()
	w.create("a", "one")
	w.create("b", "one")
	_, revision := w.entity(thingMachine, "default.b")
	w.stop()
	w.start()
	a := w.ask(streams.Command{Machine: "thing", Key: "default.b", Name: "create", Expect: fmt.Sprint(revision)})
	require.Equal(t, machines.CodeExists, a.Refusal.Code, "the revision is the expected one")
	a = w.ask(streams.Command{Machine: "thing", Key: "default.c", Name: "create", Expect: fmt.Sprint(revision)})
	require.Equal(t, machines.CodePrecondition, a.Refusal.Code)
	require.Empty(t, a.State)
}

func TestGuessesOfManyAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.OS, thingMachine)
	w.indexes = w.empty()
	w.start()
	for range 2 {
		answers := make(chan machines.Answer, 200)
		for i := range 200 {
			go func() {
				a, _ := w.tryAsk(streams.Command{Machine: "thing", Key: fmt.Sprintf("default.t%d", i), Name: "create", ID: "one", Actor: "test"})
				answers <- a
			}()
		}
		for range 200 {
			a := <-answers
			require.Equal(t, machines.Applied, a.Outcome)
			require.EqualValues(t, 1, a.Version)
		}
		w.stop()
		purge(t, w)
		w.start()
	}
	require.Equal(t, []string{"1 thing.created"}, w.events("thing", "default.t7"))
}

// purge empties COMMANDS and makes it forget the ids that it has seen.
func purge(t *testing.T, w *world) {
	t.Helper()
	require.NoError(t, w.JS.DeleteStream(context.Background(), streams.CommandStream))
	plan := streams.Plan{States: []string{"things"}}
	_, err := streams.Ensure(w.ctx, w.JS, plan)
	require.NoError(t, err)
}
