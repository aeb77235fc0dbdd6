package effects

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// told is what the server is told of deliveries of tasks: said is that up to now, in order.
func (w *world) told() (said func() []*nats.Msg) {
	about := "$JS.ACK." + w.Names.Stream(streams.EffectStream) + "."
	sub, err := w.NC.SubscribeSync(about + ">")
	require.NoError(w.T, err)
	require.NoError(w.T, w.NC.Flush())
	var all []*nats.Msg
	return func() []*nats.Msg {
		require.NoError(w.T, w.NC.Publish(about+"test", nil)) // behind all that this connection has said
		for {
			m, err := sub.NextMsg(time.Minute)
			require.NoError(w.T, err)
			if m.Subject == about+"test" {
				return all
			}
			all = append(all, m)
		}
	}
}

// What a process has is given back when it stops, and not when it was cut off: others may have it by then, and the server would take it from them.
func TestWhatAProcessGivesBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		cause error
		bound int
		naks  int
	}{{"Stopped", nil, 0, 1}, {"CutOff", consumers.ErrCutOff, 0, 0}, {"StoppedWithABound", nil, 2, 1}, {"CutOffWithABound", consumers.ErrCutOff, 2, 0}} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			w := setup(t, embedded.Interval, consumertest.Errands).start()
			said := w.told()
			h := hands{began: make(chan string, 1), end: make(chan string)}
			k := Workers{Deps: w.Deps, Performer: ByMachine{"errand": h}.Of, Bounds: func(string) map[string]int { return map[string]int{"work": c.bound} }}
			ctx, cancel := context.WithCancelCause(w.Ctx)
			ended := make(chan error, 1)
			go func() { ended <- k.Run(ctx) }()
			w.Ask(publish.Command{Machine: "errand", Key: "default.a", Name: "create"})
			<-h.began
			cancel(c.cause)
			require.NoError(t, <-ended)
			naks := 0
			for _, m := range said() {
				if string(m.Data) == "-NAK" {
					naks++
				}
			}
			require.Equal(t, c.naks, naks)
		})
	}
}

// A message that is delivered again while it is under way here, as when a process that was held up gives it back too late, is not begun again, and does not end what is under way.
func TestAMessageThatComesAgainWhileItIsUnderWay(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Errands).start()
	said := w.told()
	var begun, cut atomic.Int64
	end := make(chan struct{})
	w.Also((&Workers{Deps: w.Deps, Concurrency: 4, AckWait: 3 * time.Second, Performer: ByMachine{"errand": performed(func(ctx context.Context, t machines.Task) machines.Result {
		if t.ID == "a" {
			begun.Add(1)
			select {
			case <-end:
			case <-ctx.Done():
				cut.Add(1)
			}
		}
		return machines.Result{Data: consumertest.WorkBody{How: "worked"}}
	})}.Of}).Run)
	w.Ask(publish.Command{Machine: "errand", Key: "default.a", Name: "create"})
	var signs []*nats.Msg
	w.Eventually("it says that it is under way", func() bool { signs = said(); return len(signs) > 0 })
	require.Equal(t, "+WPI", string(signs[0].Data))
	require.NoError(t, w.NC.Publish(signs[0].Subject, []byte("-NAK")))
	w.Eventually("it is delivered again", func() bool {
		c, err := w.JS.Consumer(w.Ctx, w.Names.Stream(streams.EffectStream), "fx-errand-work")
		require.NoError(t, err)
		return c.CachedInfo().Delivered.Consumer > 1
	})
	w.Ask(publish.Command{Machine: "errand", Key: "default.b", Name: "create"})
	w.Eventually("one behind it is done", func() bool { return w.Errand("b") == "done" })
	require.EqualValues(t, []int64{1, 0}, []int64{begun.Load(), cut.Load()})
	close(end)
	w.Eventually("it is done", func() bool { return w.Errand("a") == "done" })
	w.Eventually("it is taken away", func() bool { return len(w.Stream(w.Names.Stream(streams.EffectStream), ">")) == 0 })
	require.EqualValues(t, []int64{1, 0}, []int64{begun.Load(), cut.Load()})
}

// A provider that takes a while to end, as a program does that puts its things in order, is waited for when the process stops: then its task is given back.
func TestWhatTakesAWhileToEndIsGivenBack(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Errands).start()
	said := w.told()
	begun := make(chan struct{}, 1)
	k := Workers{Deps: w.Deps, Bounds: func(string) map[string]int { return map[string]int{"work": 2} }, Performer: ByMachine{"errand": performed(func(ctx context.Context, _ machines.Task) machines.Result {
		begun <- struct{}{}
		<-ctx.Done()
		<-time.After(2 * time.Second)
		return machines.Result{}
	})}.Of}
	ctx, stop := context.WithCancel(w.Ctx)
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	w.Ask(publish.Command{Machine: "errand", Key: "default.a", Name: "create"})
	<-begun
	stop()
	require.NoError(t, <-ended)
	all := said()
	require.NotEmpty(t, all)
	require.Equal(t, "-NAK", string(all[len(all)-1].Data))
}
