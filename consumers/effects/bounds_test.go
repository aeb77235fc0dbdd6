package effects

import (
	"context"
	"fmt"
	"sync/atomic"
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
		k := Workers{Deps: d, AckWait: time.Minute, Performer: func(string) Performer { return h }, Bounds: func(string) map[string]int { return map[string]int{"work": each} }}
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
	w.Eventually("nothing waits in a process", func() bool {
		underWay, left := taken()
		return underWay == 2*each && left == tasks-2*each
	})
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

// A process that is to take nothing new does what it has, and asks for nothing.
func TestAProcessThatIsToTakeNothingAsksForNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Errands).start()
	create := func(id string) { w.Ask(publish.Command{Machine: "errand", Key: "default." + id, Name: "create"}) }
	var now atomic.Int32 // it takes tasks, takes none, and takes them again
	changed := [3]chan struct{}{make(chan struct{}), make(chan struct{}), nil}
	h := hands{began: make(chan string, 2), end: make(chan string)}
	w.Also((&Workers{
		Deps: w.Deps, Performer: ByMachine{"errand": h}.Of, Bounds: func(string) map[string]int { return map[string]int{"work": 2} },
		Takes: func() (bool, <-chan struct{}) {
			i := now.Load()
			return i != 1, changed[i]
		},
	}).Run)
	asked := func() (waits int, left uint64) {
		c, err := w.JS.Consumer(w.Ctx, w.Names.Stream(streams.EffectStream), "fx-errand-work")
		require.NoError(t, err)
		return c.CachedInfo().NumWaiting, c.CachedInfo().NumPending
	}
	create("one")
	require.Equal(t, "one", <-h.began)
	w.Eventually("it asks for another one", func() bool { waits, _ := asked(); return waits == 1 })

	now.Store(1)
	close(changed[0])
	w.Eventually("it asks for none", func() bool { waits, _ := asked(); return waits == 0 })
	create("two")
	w.Eventually("one waits", func() bool { _, left := asked(); return left == 1 })
	h.end <- ""
	w.Eventually("what it had is done", func() bool { return w.Errand("one") == "done" })
	waits, left := asked()
	require.Equal(t, []uint64{0, 1}, []uint64{uint64(waits), left}) // #nosec G115 -- none
	require.Empty(t, h.began)

	now.Store(2)
	close(changed[1])
	require.Equal(t, "two", <-h.began)
	close(h.end)
	w.Eventually("the other one is done", func() bool { return w.Errand("two") == "done" })
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
