package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/bulkack"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Where each write is fsynced, what is done leaves the stream all the same, and nothing else does.
func TestWhatIsDoneIsSwept(t *testing.T) {
	t.Parallel()
	w := setup(t, consumertest.EachWrite, consumertest.Things).speculating().start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	var all sync.WaitGroup
	for n := range 2 * bulkack.After {
		all.Go(func() {
			w.Ask(publish.Command{Machine: "thing", Key: "default.a", Name: "add", ID: fmt.Sprint(n), Body: []byte(`{"n":1}`)})
		})
	}
	all.Wait()
	require.Equal(t, 2*bulkack.After, w.Sum("a"))
	w.Ask(consumertest.ToThing("b", "create", ""))
	w.Ask(consumertest.ToThing("b", "work", `{"how":"well"}`)) // arms a timer in the same stream; nobody performs the work
	w.Eventually("an empty stream", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	w.Eventually("the timer fires", func() bool { e, _ := w.Entity(consumertest.Things, "default.b"); return e.State == "broken" })
}

// An owner that dies before it sweeps leaves what it has done to the next one, which knows it.
func TestWhatWasNotSweptIsKnown(t *testing.T) {
	t.Parallel()
	w := setup(t, consumertest.EachWrite, consumertest.Things)
	nc, err := streams.Connect(streams.ConnectOptions{Server: w.Server, Name: "first"})
	require.NoError(t, err)
	defer nc.Close()
	first := &Engine{Deps: w.Deps}
	first.NC = nc // over which it sweeps; what it writes goes over the other one
	ctx, cancel := context.WithCancel(w.Ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = first.Run(ctx) })
	w.Ask(consumertest.ToThing("a", "create", ""))
	for n := range 10 {
		w.Ask(publish.Command{Machine: "thing", Key: "default.a", Name: "add", ID: fmt.Sprint(n), Body: []byte(`{"n":1}`)})
	}
	nc.Close()
	cancel()
	running.Wait()
	before := len(w.Stream(streams.CommandStream, "instar.in.>"))
	w.start()
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	w.Eventually("an empty stream", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	t.Logf("%d commands came again", before)
	require.Equal(t, 11, w.Sum("a"))
	w.CheckStory("a")
}

// What only memory knows leaves the stream at once: if somebody wrote the value by hand, a refused command that came again
// might be taken after all. So there is a time when a refusal is gone, and what was applied before it is not.
func TestARefusalIsNotKeptForTheSweep(t *testing.T) {
	t.Parallel()
	w := setup(t, consumertest.EachWrite, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Eventually("a refusal that is gone before the sweep", func() bool {
		w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
		refused := w.Ask(publish.Command{Machine: "thing", Key: "default.a", Name: "add", Expect: "1000000", Body: []byte(`{"n":10}`)})
		require.Equal(t, machines.CodePrecondition, refused.Refusal.Code)
		applied, kept := 0, 0
		for _, m := range w.Stream(streams.CommandStream, "instar.in.>") {
			if m.Header.Get(streams.HeaderExpect) == "" {
				applied++
			} else {
				kept++
			}
		}
		return applied > 0 && kept == 0
	})
	w.Eventually("an empty stream", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
}

// Somebody breaks a value by hand. What was taken before is not taken for what nobody can process.
func TestWhatWasTakenIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	w := setup(t, consumertest.EachWrite, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	_, err := w.JS.Publish(w.Ctx, "$KV.things.default.a", []byte("broken"))
	require.NoError(t, err)
	refused := w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)) // after a conflict
	require.Equal(t, machines.CodeParked, refused.Refusal.Code)
	w.Eventually("an empty stream", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
}
