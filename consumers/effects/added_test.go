package effects

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// A machine that is added while the engine and the workers run takes commands, and its effects are performed, while those of
// another one go on.
func TestAMachineIsAddedWhileWorkersRun(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	var asked atomic.Int64
	k := consumertest.NewWorker()
	w.Also((&Workers{Deps: w.Deps, Performer: func(machine string) Performer {
		asked.Add(1)
		return k
	}}).Run)
	begun, done := make(chan struct{}), make(chan struct{})
	ctx, stop := context.WithCancel(w.Ctx)
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			id := fmt.Sprint("t-", i)
			for _, cmd := range []publish.Command{consumertest.ToThing(id, "create", ""), consumertest.ToThing(id, "work", `{"how":"well"}`)} {
				if a, err := w.TryAsk(cmd); err != nil || a.Outcome != machines.Applied {
					t.Errorf("%s of %s: %+v, %v", cmd.Name, id, a, err)
				}
			}
			if i == 2 {
				close(begun)
			}
		}
	}()
	<-begun
	_, err := w.TryAsk(publish.Command{Machine: "errand", Key: "default.a", Name: "create"})
	require.NoError(t, err)
	require.Nil(t, w.Machines.Get("errand"))
	_, err = streams.Ensure(w.Ctx, w.JS, streams.Plan{States: []string{consumertest.Errands.Plural}})
	require.NoError(t, err)
	require.NoError(t, w.Machines.Add(consumertest.Errands))
	w.Ask(publish.Command{Machine: "errand", Key: "default.b", Name: "create"})
	w.Eventually("it is done", func() bool { return w.Errand("b") == "done" })
	stop()
	<-done
	require.EqualValues(t, 2, asked.Load(), "once for each machine")
}

// The first machine whose effects nobody performs ends the workers, also when it is added later.
func TestNobodyPerformsTheEffectsOfAnAddedMachine(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	ended := make(chan error, 1)
	serving := make(chan struct{}, 1)
	w.Running.Go(func() {
		ended <- (&Workers{Deps: w.Deps, Performer: func(machine string) Performer {
			if machine != consumertest.Things.Name {
				return nil
			}
			serving <- struct{}{}
			return External
		}}).Run(w.Ctx)
	})
	<-serving
	require.NoError(t, w.Machines.Add(consumertest.Errands))
	require.ErrorContains(t, <-ended, "nobody performs effect work of errand")
}
