package worker

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/streams"
)

// A worker has no more tasks under way than it may, and goes on when its consumer was removed.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const most, tasks = 3, 20
	var now, top atomic.Int64
	w.serve(Options{Concurrency: most}, func(_ context.Context, t Task[how]) (how, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for seen := top.Load(); n > seen && !top.CompareAndSwap(seen, n); seen = top.Load() {
		}
		return how{"worked"}, nil
	})
	w.ask("first", "x")
	w.Reaches("first", "open")
	require.NoError(t, w.JS.DeleteConsumer(t.Context(), w.Names.Stream(streams.EffectStream), "fx-thing-work"))
	w.Eventually("it is there again", func() bool {
		_, err := w.JS.Consumer(w.Ctx, w.Names.Stream(streams.EffectStream), "fx-thing-work")
		return err == nil
	})
	for i := range tasks {
		w.ask(fmt.Sprint("t", i), "x")
	}
	for i := range tasks {
		w.Eventually("it has ended, and be it too late for a slow machine", func() bool {
			e, _ := w.Entity(consumertest.Things, fmt.Sprint("default.t", i))
			return e.State == "open" || e.State == "broken"
		})
	}
	w.Eventually("all tasks are acknowledged", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 0 })
	require.LessOrEqual(t, top.Load(), int64(most))
}

// A task of a request that was given up for lost is not counted as one of the next request, and is given back when there is no room for it.
func TestATaskThatComesLate(t *testing.T) {
	t.Parallel()
	p := &puller{running: map[string]bool{"a": true, "b": true, "c": true}, ended: make(chan string, 3)}
	p.arrived(t.Context(), &nats.Msg{Subject: "late"}, 3, false)
	require.Len(t, p.running, 3, "it is not begun")
	require.Zero(t, p.asked, "no more than three are asked for")
}

// A context that nobody can end is as good as any other.
func TestRunWithoutAnEnd(t *testing.T) {
	t.Parallel()
	w := setup(t)
	k, err := New(Options{NC: w.connect()})
	require.NoError(t, err)
	Handle(k, Effect{Machine: "thing", Name: "work", Done: consumertest.Things.Effects[0].Done}, worked)
	ended := make(chan error, 1)
	go func() { ended <- k.Run(context.Background()) }()
	w.ask("a", "well")
	require.Equal(t, "worked", w.Reaches("a", "open").Data.(*consumertest.Thing).Text)
	k.opts.NC.Close()
	require.ErrorIs(t, <-ended, nats.ErrConnectionClosed)
}

// A task that is delivered again while it is under way here is neither begun again nor given back, whether there is room for it or not.
func TestATaskThatComesAgain(t *testing.T) {
	t.Parallel()
	sub := &nats.Subscription{}
	for most := 1; most <= 2; most++ {
		p := &puller{running: map[string]bool{"7 1700000000": true}}
		p.arrived(t.Context(), &nats.Msg{Subject: "again", Reply: "$JS.ACK.EFFECTS.fx.2.7.9.1700000000.0", Sub: sub}, most, false)
		require.Len(t, p.running, 1)
	}
}
