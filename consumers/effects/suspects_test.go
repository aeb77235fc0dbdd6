package effects

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/poison"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
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
		return machines.Result{Data: consumertest.WorkBody{How: "worked"}}
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
	w.T.Helper()
	nc, err := streams.Connect(streams.ConnectOptions{Server: w.Server, Name: fmt.Sprint("process ", n), Log: w.Log})
	require.NoError(w.T, err)
	defer nc.Close()
	d := &deadly{kill: nc.Close, killers: killers, died: make(chan struct{}, 1), over: w.Ctx.Done()}
	workers := &Workers{Deps: w.Deps, Performer: ByMachine{"errand": d}.Of, AckWait: time.Second, Concurrency: 4, process: fmt.Sprint(n)}
	workers.NC, workers.Turn = nc, make(chan struct{}, 1)
	workers.JS, err = streams.JetStream(nc)
	require.NoError(w.T, err)
	workers.Appender, err = publish.NewAppender(nc, publish.AppenderOptions{Timeout: 2 * time.Second})
	require.NoError(w.T, err)
	defer workers.Appender.Close()
	workers.Commands, err = publish.NewCommands(workers.Appender)
	require.NoError(w.T, err)
	defer workers.Commands.Close()
	ctx, stop := context.WithCancel(w.Ctx)
	ended := make(chan error, 1)
	go func() { ended <- workers.Run(ctx) }()
	defer func() { stop(); <-ended }()
	limit := time.After(2 * time.Minute)
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
		case <-limit:
			w.T.Fatal("it neither dies nor comes to an end")
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
			w := setup(t, embedded.Interval, consumertest.Errands).start()
			killers := []string{"e-3", "e-7"}
			for i := range 12 {
				w.Ask(publish.Command{Machine: "errand", Key: fmt.Sprintf("default.e-%d", i), Name: "create"})
			}
			letters := func() []publish.DeadLetter {
				list, err := w.DeadLetters().List(w.Ctx, 0, 10)
				require.NoError(t, err)
				return list
			}
			finished := func() bool { return len(w.Stream(streams.EffectStream, ">")) == 0 }
			deaths := 0
			for w.process(deaths, killers, finished) {
				deaths++
				require.LessOrEqual(t, deaths, 2*(poison.GivenUp+1), "one that is begun beside the process's first death, and as often as one is given up")
				if !outlives {
					require.NoError(t, w.JS.DeleteConsumer(w.Ctx, streams.EffectStream, "fx-errand-work"))
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
				w.Eventually(id, func() bool { return w.Errand(id) == want })
			}
			if outlives { // a consumer that begins anew looks up as many tasks as can be under way: the note of another one ends by its life
				require.Empty(t, w.Suspects("fx-errand-work.>"), "no note is left")
			}

			for _, l := range dead {
				require.NoError(t, w.DeadLetters().Redrive(w.Ctx, l.Seq))
			}
			require.False(t, w.process(deaths, nil, finished))
			for _, id := range killers {
				w.Eventually(id, func() bool { return w.Errand(id) == "done" })
			}
		})
	}
}

// A task that came after this process began may have ended another one, which did it first: without a note it would end each process once.
func TestATaskOfAnotherProcessHasANote(t *testing.T) {
	t.Parallel()
	k := &kind{found: 1, most: 1}
	for _, c := range []struct {
		sequence, delivered uint64
		want                bool
	}{{1, 1, true}, {1, 1, false}, {1, 2, true}, {2, 1, false}, {2, 2, true}} {
		require.Equal(t, c.want, k.mayHaveKilled(&jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: c.sequence}, NumDelivered: c.delivered}), "%+v", c)
	}
}

// What a stopping process gives back counts for nothing, and neither does what comes while a process lives.
func TestTasksThatAreGivenBackAreNotSuspected(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Errands).start()
	w.Ask(publish.Command{Machine: "errand", Key: "default.a", Name: "create"})
	for n := range poison.GivenUp + 2 {
		work := held{make(chan struct{}), make(chan struct{})}
		ctx, stop := context.WithCancel(w.Ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- (&Workers{Deps: w.Deps, Performer: ByMachine{"errand": work}.Of, process: fmt.Sprint(n)}).Run(ctx)
		}()
		select {
		case <-work.begun:
		case <-time.After(20 * time.Second):
			t.Fatal("a task that was given back comes at once, and not when its ack is overdue (30 s)")
		}
		stop()
		require.NoError(t, <-ended)
		require.Empty(t, w.Suspects("fx-errand-work.>"))
	}
	k := consumertest.NewWorker()
	w.Also((&Workers{Deps: w.Deps, Performer: ByMachine{"errand": k}.Of}).Run)
	w.Eventually("it is done", func() bool { return w.Errand("a") == "done" })
	for n := range 5 {
		id := fmt.Sprint("b", n)
		w.Ask(publish.Command{Machine: "errand", Key: "default." + id, Name: "create"})
		w.Eventually(id, func() bool { return w.Errand(id) == "done" })
	}
	require.Empty(t, w.Stream("KV_owners", "$KV.owners.suspect.fx-errand-work.2"), "a task that came to a process that lives costs no note")
}

// holding performs nothing before its process stops, and counts what it has begun.
type holding struct{ begun atomic.Int64 }

func (h *holding) Perform(ctx context.Context, _ machines.Task) machines.Result {
	h.begun.Add(1)
	<-ctx.Done()
	return machines.Result{}
}

// Of a process that stops with more than it can do at once, everything comes to the next one before its acks are overdue (30 s).
func TestABusyProcessGivesEverythingBack(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Errands).start()
	const tasks = 40
	for n := range tasks {
		w.Ask(publish.Command{Machine: "errand", Key: fmt.Sprint("default.e-", n), Name: "create"})
	}
	run := func(p Performer) (stop func()) {
		ctx, cancel := context.WithCancel(w.Ctx)
		ended := make(chan error, 1)
		go func() { ended <- (&Workers{Deps: w.Deps, Performer: ByMachine{"errand": p}.Of}).Run(ctx) }()
		return func() {
			cancel()
			require.NoError(t, <-ended)
		}
	}
	for range 5 {
		h := &holding{}
		stop := run(h)
		require.Eventually(t, func() bool { return h.begun.Load() == 16 }, 20*time.Second, time.Millisecond)
		stop()
	}
	c := &counted{}
	stop := run(c)
	require.Eventually(t, func() bool { return c.performed.Load() >= tasks }, 20*time.Second, 10*time.Millisecond)
	stop()
}

// counted counts what it performs.
type counted struct{ performed atomic.Int64 }

func (c *counted) Perform(context.Context, machines.Task) machines.Result {
	c.performed.Add(1)
	return machines.Result{Data: consumertest.WorkBody{How: "worked"}}
}

// A suspected task may wait for its turn for long. Nothing is done for an entity that has ended meanwhile.
func TestATaskThatNobodyWaitsForAnyMoreLosesItsTurn(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "work", `{"how":"x"}`))
	w.Eventually("its task", func() bool { return len(w.Stream(streams.EffectStream, ">")) == 1 })
	msgs := w.Stream(streams.EffectStream, ">")
	left := poison.Note{Deps: &w.Deps, Name: "fx-thing-work.1"}
	require.NoError(t, left.Restore(w.Ctx, &poison.Record{Seq: msgs[0].Sequence, Time: msgs[0].Time, Starts: poison.Suspected, By: "dead"}, 0))
	deps := w.Deps
	deps.Turn = make(chan struct{}, 1)
	deps.Turn <- struct{}{} // a suspected command is under way
	p := &counted{}
	ctx, stop := context.WithCancel(w.Ctx)
	defer stop()
	w.Running.Go(func() { _ = (&Workers{Deps: deps, Performer: ByMachine{"thing": p}.Of}).Run(ctx) })
	w.Reaches("a", "broken") // its time is over
	w.Ask(consumertest.ToThing("a", "close", ""))
	<-deps.Turn
	w.Eventually("it is gone", func() bool { return len(w.Stream(streams.EffectStream, ">")) == 0 })
	require.Zero(t, p.performed.Load())
	require.Equal(t, 1, n.Count("attempt thing.work unwanted"))
	require.Empty(t, deps.Turn)
}
