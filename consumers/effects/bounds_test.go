package effects

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// hands begin tasks, and end each when that is let go.
type hands struct{ began, end chan string }

func (h hands) Perform(ctx context.Context, t machines.Task) machines.Result {
	h.began <- t.ID
	select {
	case <-h.end:
	case <-ctx.Done():
	}
	return machines.Result{Data: consumertest.WorkBody{How: "worked"}}
}

// A process takes as many tasks as it may have under way and no more: what is left is there for others, and for it when it can begin the next one. What a process that stops has not done is there at once.
func TestAProcessTakesNoMoreThanItCanBegin(t *testing.T) {
	t.Parallel()
	const each, tasks = 2, 7
	w := setup(t, embedded.Interval, consumertest.Errands).start()
	for i := range tasks {
		w.Ask(publish.Command{Machine: "errand", Key: fmt.Sprintf("default.e%d", i), Name: "create"})
	}
	process := func(d consumers.Deps) (h hands, stop func()) {
		h = hands{began: make(chan string, tasks), end: make(chan string)}
		ctx, cancel := context.WithCancel(w.Ctx)
		ended := make(chan error, 1)
		k := Workers{Deps: d, AckWait: time.Hour, Performer: func(string) Performer { return h }, Bounds: func(string) map[string]int { return map[string]int{"work": each} }}
		go func() { ended <- k.Run(ctx) }()
		return h, func() { cancel(); require.NoError(t, <-ended) }
	}
	taken := func() (underWay, left int) {
		c, err := w.JS.Consumer(w.Ctx, w.Names.Stream(streams.EffectStream), "fx-errand-work")
		require.NoError(t, err)
		return c.CachedInfo().NumAckPending, int(c.CachedInfo().NumPending) // #nosec G115 -- seven
	}
	one, stopOne := process(w.Apart("one"))
	two, stopTwo := process(w.Apart("two"))
	for range each {
		<-one.began
		<-two.began
	}
	underWay, left := taken()
	require.Equal(t, []int{2 * each, tasks - 2*each}, []int{underWay, left}, "nothing waits in a process")
	one.end <- ""
	<-one.began
	require.Empty(t, two.began)

	stopOne()
	require.Empty(t, two.began, "the other one has as many as it may")
	close(two.end)
	for i := range tasks {
		w.Eventually("all are done", func() bool { return w.Errand(fmt.Sprint("e", i)) == "done" })
	}
	stopTwo()
}

// Of two workers of one process each serves its machines.
func TestWorkersOfSomeMachines(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things, consumertest.Errands).start()
	for _, only := range []string{"thing", "errand"} {
		w.Also((&Workers{Deps: w.Deps, Serves: func(machine string) bool { return machine == only }, Performer: func(machine string) Performer {
			require.Equal(t, only, machine)
			return consumertest.NewWorker()
		}}).Run)
	}
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "work", `{"how":"well"}`))
	w.Ask(publish.Command{Machine: "errand", Key: "default.b", Name: "create"})
	w.Reaches("a", "open")
	w.Eventually("it is done", func() bool { return w.Errand("b") == "done" })
}
