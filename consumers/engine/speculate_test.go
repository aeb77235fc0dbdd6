package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// speculating gives the engine indexes that never have what a bucket has: each guess that can be wrong is.
func (w *world) speculating() *world {
	w.T.Helper()
	_, err := streams.Ensure(w.Ctx, w.JS, streams.Plan{States: []string{"nothing"}})
	require.NoError(w.T, err)
	w.Indexes = &index.Map{}
	for _, m := range w.Machines.All() {
		ix := index.New(w.JS, "nothing", func(string, []byte) (index.Meta, error) { return index.Meta{}, nil }, index.Options{})
		w.Also(ix.Run)
		<-ix.Ready()
		w.Indexes.Set(m.Name, ix)
	}
	return w
}

// tally counts how often partitions start again, and how often the bucket is asked for an entity.
type tally struct {
	consumers.NoMeter
	restarts, asked atomic.Int64
}

func (n *tally) Restarted(string) { n.restarts.Add(1) }

func (w *world) tally() *tally {
	w.T.Helper()
	n := &tally{}
	w.Meter = n
	_, err := w.NC.Subscribe("$JS.API.STREAM.MSG.GET.KV_things", func(*nats.Msg) { n.asked.Add(1) })
	require.NoError(w.T, err)
	require.NoError(w.T, w.NC.Flush())
	return n
}

func (w *world) create(key, id string) machines.Answer {
	w.T.Helper()
	return w.Ask(publish.Command{Machine: "thing", Key: "default." + key, Name: "create", ID: id, Actor: "test"})
}

func TestARightGuessAsksNobody(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.OS, consumertest.Things).speculating()
	n := w.tally()
	w.start()
	require.Equal(t, machines.Applied, w.create("a", "one").Outcome)
	require.Equal(t, machines.Applied, w.Ask(publish.Command{Machine: "thing", Key: "default.a", Name: "add", Body: []byte(`{"n":3}`)}).Outcome)
	require.Zero(t, n.asked.Load())
	require.Zero(t, n.restarts.Load())
}

func TestAWrongGuessChangesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.OS, consumertest.Things).speculating()
	n := w.tally()
	w.start()
	require.Equal(t, machines.Applied, w.create("a", "one").Outcome)
	require.Equal(t, machines.Applied, w.create("b", "one").Outcome)
	require.Equal(t, machines.Applied, w.Ask(publish.Command{Machine: "thing", Key: "default.a", Name: "add", Body: []byte(`{"n":3}`)}).Outcome)
	w.acked()
	_, before := w.Entity(consumertest.Things, "default.a")

	w.Stop()
	w.start() // it remembers nothing
	n.restarts.Store(0)
	again := w.create("a", "two")
	require.Equal(t, machines.Refused, again.Outcome)
	require.Equal(t, machines.CodeExists, again.Refusal.Code)
	require.Equal(t, "open", again.State)
	require.EqualValues(t, 1, n.restarts.Load(), "it was taken for one that is not there")
	require.Equal(t, machines.CodeExists, w.create("b", "two").Refusal.Code)
	require.EqualValues(t, 1, n.restarts.Load(), "and no other one is for a while")
	_, after := w.Entity(consumertest.Things, "default.a")
	require.Equal(t, before, after)
	w.Eventually("the event of the refusal", func() bool {
		return slices.Equal([]string{"1 thing.created", "2 thing.added", "2 command.refused"}, w.Events("thing", "default.a"))
	})
	require.Equal(t, machines.Applied, w.Ask(publish.Command{Machine: "thing", Key: "default.a", Name: "close"}).Outcome)
}

func TestAWrongGuessKnowsTheCommandAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.OS, consumertest.Things).speculating().start()
	first := w.create("a", "one")
	w.Stop()
	purge(t, w) // so that the stream takes the same id again
	w.start()
	again := w.create("a", "one")
	require.Equal(t, first.Version, again.Version)
	require.Equal(t, machines.Applied, again.Outcome)
	require.True(t, again.Replayed)
	w.Told("thing", "default.a", "1 thing.created")
}

// The value of an entity is lost, its events and its effect are not, and it is taken for one that was never there: what the new life
// emits is not taken for what the old one did.
func TestAGuessBesideALostLife(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", "add", "explode"} {
		t.Run("TheLastIs="+end, func(t *testing.T) {
			t.Parallel()
			w, n := noted(t, consumertest.Things, consumertest.Errands)
			w.speculating().start()
			w.create("a", "one")
			w.Ask(publish.Command{Machine: "errand", Key: "default.a", Name: "create", ID: "one"})
			want := []string{"1 thing.created"}
			switch end {
			case "add":
				w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
				want = append(want, "2 thing.added")
			case "explode":
				w.Ask(consumertest.ToThing("a", "explode", ""))
				want = append(want, "1 command.refused")
			}
			w.Eventually("its events", func() bool { return slices.Equal(want, w.Events("thing", "default.a")) })
			w.Eventually("its effect", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 1 })
			w.Stop()
			w.Empty("KV_things", "KV_errands", streams.CommandStream)
			w.start()
			require.Equal(t, machines.Applied, w.create("a", "two").Outcome)
			above := 2
			if end == "add" {
				above = 3
			}
			want = append(want, fmt.Sprintf("%d entity.reconciled", above), fmt.Sprintf("%d thing.created", above))
			w.Eventually("the events of both lives", func() bool { return slices.Equal(want, w.Events("thing", "default.a")) })
			require.Equal(t, 1, n.Count("reconciled thing value-older"), "%v", n.List)
			again := w.create("a", "two")
			require.True(t, again.Replayed)
			require.Equal(t, machines.Applied, again.Outcome)
			require.Equal(t, machines.CodeExists, w.create("a", "one").Refusal.Code, "the answer of the lost life is not given")

			require.Equal(t, machines.Applied, w.Ask(publish.Command{Machine: "errand", Key: "default.a", Name: "create", ID: "two"}).Outcome)
			w.Also((&effects.Workers{Deps: w.Deps, Performer: effects.ByMachine{"thing": consumertest.NewWorker(), "errand": consumertest.NewWorker()}.Of}).Run)
			w.Eventually("its task is done", func() bool { return w.Errand("a") == "done" })
		})
	}
}

// What leads to no commit is found out by nobody: the entity is looked up, and nothing starts again.
func TestAGuessIsNoReasonToRefuse(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.OS, consumertest.Things).speculating()
	n := w.tally()
	w.start()
	w.create("b", "one")
	w.create("e", "one")
	w.acked()
	_, revision := w.Entity(consumertest.Things, "default.b")
	w.Stop()
	w.start()
	n.restarts.Store(0)
	a := w.Ask(publish.Command{Machine: "thing", Key: "default.b", Name: "create", Expect: fmt.Sprint(revision)})
	require.Equal(t, machines.CodeExists, a.Refusal.Code, "the revision is the expected one")
	a = w.Ask(publish.Command{Machine: "thing", Key: "default.c", Name: "create", Expect: fmt.Sprint(revision)})
	require.Equal(t, machines.CodePrecondition, a.Refusal.Code)
	require.Empty(t, a.State)
	a = w.Ask(publish.Command{Machine: "thing", Key: "default.d", Name: "create", Body: bytes.Repeat([]byte(" "), consumers.MaxBody+1)})
	require.Equal(t, machines.CodeValidation, a.Refusal.Code)
	require.Equal(t, machines.Applied, w.create("d", "one").Outcome)
	a = w.Ask(publish.Command{Machine: "thing", Key: "default.e", Name: "create", Body: bytes.Repeat([]byte(" "), consumers.MaxBody+1)})
	require.Equal(t, machines.CodeValidation, a.Refusal.Code)
	require.Equal(t, "open", a.State, "it is there")
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("e", "add", `{"n":1}`)).Outcome)
	require.Zero(t, n.restarts.Load())
}

func TestGuessesOfManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, profile := range []embedded.Profile{embedded.OS, embedded.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w := setup(t, profile, consumertest.Things).speculating().start()
			for range 2 {
				answers := make(chan machines.Answer, 100)
				for i := range cap(answers) {
					go func() {
						a, _ := w.TryAsk(publish.Command{Machine: "thing", Key: fmt.Sprintf("default.t%d", i), Name: "create", ID: "one", Actor: "test"})
						answers <- a
					}()
				}
				for range cap(answers) {
					a := <-answers
					require.Equal(t, machines.Applied, a.Outcome)
					require.EqualValues(t, 1, a.Version)
				}
				w.Stop()
				purge(t, w)
				w.start()
			}
			w.Told("thing", "default.t7", "1 thing.created")
		})
	}
}

// acked waits until no command is left that would come again.
func (w *world) acked() {
	w.T.Helper()
	w.Eventually("all commands are done", func() bool {
		s, err := w.JS.Stream(w.Ctx, streams.CommandStream)
		return err == nil && s.CachedInfo().State.Msgs == 0
	})
}

// purge empties COMMANDS and makes it forget the ids that it has seen.
func purge(t *testing.T, w *world) {
	t.Helper()
	require.NoError(t, w.JS.DeleteStream(context.Background(), streams.CommandStream))
	plan := streams.Plan{States: []string{"things"}}
	_, err := streams.Ensure(w.Ctx, w.JS, plan)
	require.NoError(t, err)
}
