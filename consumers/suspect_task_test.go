package consumers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// deadly is a provider that ends its process when it gets certain tasks.
type deadly struct {
	kill    func()
	killers []string
	died    chan struct{}
	over    <-chan struct{} // the test
}

func (d *deadly) Perform(_ context.Context, t machines.Task) machines.Result {
	if !slices.Contains(d.killers, t.ID) {
		return machines.Result{Data: workBody{How: "worked"}}
	}
	d.kill()
	select {
	case d.died <- struct{}{}:
	default:
	}
	<-d.over // nothing is done any more
	return machines.Result{}
}

// process performs effects as a process of its own would, which dies when its provider says so: it is not heard of any more.
// It returns when it has died, or when done reports true.
func (w *world) process(n int, killers []string, done func() bool) (died bool) {
	w.t.Helper()
	nc, err := streams.Connect(streams.ConnectOptions{Server: w.server, Name: fmt.Sprint("process ", n), Log: w.Log})
	require.NoError(w.t, err)
	defer nc.Close()
	d := &deadly{kill: nc.Close, killers: killers, died: make(chan struct{}, 1), over: w.ctx.Done()}
	workers := &Workers{Deps: w.Deps, Performers: map[string]Performer{"errand": d}, AckWait: time.Second, Concurrency: 4, process: fmt.Sprint(n)}
	workers.NC, workers.turn = nc, make(chan struct{}, 1)
	workers.JS, err = streams.JetStream(nc)
	require.NoError(w.t, err)
	workers.Appender, err = streams.NewAppender(nc, streams.AppenderOptions{Timeout: 2 * time.Second})
	require.NoError(w.t, err)
	defer workers.Appender.Close()
	workers.Commands, err = streams.NewCommands(workers.Appender)
	require.NoError(w.t, err)
	defer workers.Commands.Close()
	ctx, stop := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- workers.Run(ctx) }()
	defer func() { stop(); <-ended }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-d.died:
			return true
		case <-tick.C:
			if done() {
				return false
			}
		case <-time.After(45 * time.Second):
			w.t.Fatal("it neither dies nor comes to an end")
		}
	}
}

// Two tasks end the process each time that one is done. Both are given up after a bound, and what waits with them is done,
// whether the consumer outlives the process or not. Put back when the provider is mended, they are done as well.
func TestTasksThatKillTheProcessAreGivenUp(t *testing.T) {
	t.Parallel()
	for _, outlives := range []bool{true, false} {
		t.Run(fmt.Sprint("TheConsumerOutlivesIt=", outlives), func(t *testing.T) {
			t.Parallel()
			w := setup(t, streams.Interval, errandMachine).start()
			killers := []string{"e-3", "e-7"}
			for i := range 12 {
				w.ask(streams.Command{Machine: "errand", Key: fmt.Sprintf("default.e-%d", i), Name: "create"})
			}
			letters := func() []streams.DeadLetter {
				list, err := w.dead().List(w.ctx, 0, 10)
				require.NoError(t, err)
				return list
			}
			finished := func() bool { return len(w.stream(streams.EffectStream, ">")) == 0 }
			deaths := 0
			for w.process(deaths, killers, finished) {
				deaths++
				require.LessOrEqual(t, deaths, 2*(suspectDead+1), "one that is begun beside the process's first death, and as often as one is given up")
				if !outlives {
					require.NoError(t, w.JS.DeleteConsumer(w.ctx, streams.EffectStream, "fx-errand-work"))
				}
			}
			t.Logf("%d processes died", deaths)
			dead := letters()
			require.Len(t, dead, len(killers))
			for _, l := range dead {
				require.Contains(t, killers, strings.TrimPrefix(l.Key, "default."))
				require.Contains(t, l.Reason, "processes have ended while they did it")
			}
			for i := range 12 {
				id, want := fmt.Sprintf("e-%d", i), "done"
				if slices.Contains(killers, id) {
					want = "open"
				}
				w.eventually(id, func() bool { return w.errand(id) == want })
			}
			require.Empty(t, suspects(w, "fx-errand-work.>"), "no note is left")

			for _, l := range dead {
				require.NoError(t, w.dead().Redrive(w.ctx, l.Seq))
			}
			require.False(t, w.process(deaths, nil, finished))
			for _, id := range killers {
				w.eventually(id, func() bool { return w.errand(id) == "done" })
			}
		})
	}
}

// suspects are the keys of the notes that have not been taken back.
func suspects(w *world, of string) (keys []string) {
	for _, m := range w.stream("KV_owners", "$KV.owners."+suspectKey+of) {
		if len(m.Data) > 0 {
			keys = append(keys, m.Subject)
		}
	}
	return keys
}

// What a stopping process gives back counts for nothing, and neither does what comes while a process lives.
func TestTasksThatAreGivenBackAreNotSuspected(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, errandMachine).start()
	w.ask(streams.Command{Machine: "errand", Key: "default.a", Name: "create"})
	for n := range suspectDead + 2 {
		work := held{make(chan struct{}), make(chan struct{})}
		ctx, stop := context.WithCancel(w.ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- (&Workers{Deps: w.Deps, Performers: map[string]Performer{"errand": work}, AckWait: 100 * time.Millisecond, process: fmt.Sprint(n)}).Run(ctx)
		}()
		<-work.begun
		stop()
		require.NoError(t, <-ended)
		require.Empty(t, suspects(w, "fx-errand-work.>"))
	}
	k := &worker{tries: map[string]int{}}
	w.also((&Workers{Deps: w.Deps, Performers: map[string]Performer{"errand": k}}).Run)
	w.eventually("it is done", func() bool { return w.errand("a") == "done" })
	for n := range 5 {
		id := fmt.Sprint("b", n)
		w.ask(streams.Command{Machine: "errand", Key: "default." + id, Name: "create"})
		w.eventually(id, func() bool { return w.errand(id) == "done" })
	}
	require.Empty(t, w.stream("KV_owners", "$KV.owners."+suspectKey+"fx-errand-work.2"), "a task that came to a process that lives costs no note")
}

// counted counts what it performs.
type counted struct{ performed atomic.Int64 }

func (c *counted) Perform(context.Context, machines.Task) machines.Result {
	c.performed.Add(1)
	return machines.Result{Data: workBody{How: "worked"}}
}

// A suspected task may wait for its turn for long. Nothing is done for an entity that has ended meanwhile.
func TestATaskThatNobodyWaitsForAnyMoreLosesItsTurn(t *testing.T) {
	t.Parallel()
	w, n := noted(t, thingMachine)
	w.start()
	w.ask(toThing("a", "create", ""))
	w.ask(toThing("a", "work", `{"how":"x"}`))
	w.eventually("its task", func() bool { return len(w.stream(streams.EffectStream, ">")) == 1 })
	msgs := w.stream(streams.EffectStream, ">")
	left := note{d: &w.engine.Deps, name: "fx-thing-work.1"}
	require.NoError(t, left.keep(w.ctx, &suspect{Seq: msgs[0].Sequence, Time: msgs[0].Time, Starts: suspectAfter, By: "dead"}, 0))
	deps := w.Deps
	deps.turn = make(chan struct{}, 1)
	deps.turn <- struct{}{} // a suspected command is under way
	p := &counted{}
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	w.running.Go(func() { _ = (&Workers{Deps: deps, Performers: map[string]Performer{"thing": p}}).Run(ctx) })
	w.reaches("a", "broken") // its time is over
	w.ask(toThing("a", "close", ""))
	<-deps.turn
	w.eventually("it is gone", func() bool { return len(w.stream(streams.EffectStream, ">")) == 0 })
	require.Zero(t, p.performed.Load())
	require.Equal(t, 1, n.count("attempt thing.work unwanted"))
	require.Empty(t, deps.turn)
}
