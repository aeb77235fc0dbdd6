package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

func TestMain(m *testing.M) { consumertest.Main(m) }

// world is a NATS with an engine, whose effects are left to workers, and which answers what an entity is like, as the micro service does.
type world struct {
	*consumertest.World
	t *testing.T
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{consumertest.New(t, embedded.Interval, consumertest.Things), t}
	w.Run((&engine.Engine{Deps: w.Deps, Indexes: w.Indexes}).Run)
	w.Also((&effects.Workers{
		Deps: w.Deps, AckWait: 400 * time.Millisecond, Performer: func(string) effects.Performer { return effects.External },
		Routes: func(string) effects.Routes {
			return func() ([]string, <-chan struct{}) { return []string{"mars"}, nil }
		},
	}).Run)
	bucket := w.Bucket("things")
	_, err := w.NC.Subscribe("instar.api.get.thing.>", func(m *nats.Msg) {
		v, err := bucket.Get(context.Background(), strings.TrimPrefix(m.Subject, "instar.api.get.thing."))
		if err != nil {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Service-Error-Code": {"404"}}})
			return
		}
		_ = m.Respond(v.Value())
	})
	require.NoError(t, err)
	return w
}

func (w *world) connect() *nats.Conn {
	w.t.Helper()
	nc, err := streams.Connect(streams.ConnectOptions{Server: w.Server, Name: "worker", Log: w.Log})
	require.NoError(w.t, err)
	w.t.Cleanup(nc.Close)
	return nc
}

type how struct {
	How string `json:"how"`
}

type handler = func(ctx context.Context, t Task[how]) (how, error)

// serve runs a worker until it is stopped.
func (w *world) serve(opts Options, h handler) (stop func()) { return w.serveRoute("", opts, h) }

func (w *world) serveRoute(route string, opts Options, h handler) (stop func()) {
	w.t.Helper()
	if opts.NC == nil {
		opts.NC = w.connect()
	}
	k, err := New(opts)
	require.NoError(w.t, err)
	Handle(k, Effect{Machine: "thing", Name: "work", Done: consumertest.Things.Effects[0].Done, Route: route}, h)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); require.NoError(w.t, <-done) })
	w.t.Cleanup(stop)
	return stop
}

func (w *world) ask(id, text string) {
	w.Ask(consumertest.ToThing(id, "create", ""))
	w.Ask(consumertest.ToThing(id, "work", `{"how":"`+text+`"}`))
}

func (w *world) state(id string) string {
	e, _ := w.Entity(consumertest.Things, "default."+id)
	return e.State
}

func worked(context.Context, Task[how]) (how, error) { return how{"worked"}, nil }

func TestResults(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.serve(Options{Name: "w-1"}, func(ctx context.Context, t Task[how]) (how, error) {
		switch {
		case t.Data.How == "second" && t.Try == 1:
			return how{}, errors.New("not now")
		case t.Data.How == "later" && t.Try == 1:
			return how{}, RetryAfter(10*time.Millisecond, errors.New("not now"))
		case t.Data.How == "terminal":
			return how{}, Terminal(errors.New("never"))
		case t.Data.How == "panic":
			panic("broken")
		case t.Data.How == "large":
			return how{strings.Repeat("x", 2<<20)}, nil
		case t.Data.How == "wordy":
			return how{}, &Failure{Code: strings.Repeat("c", 2<<20), Message: strings.Repeat("ü", 1<<20)}
		case t.Data.How == "larger than a body":
			return how{strings.Repeat("x", machines.MaxBody)}, nil
		}
		return how{"worked"}, nil
	})
	for _, id := range []string{"well", "second", "later", "terminal", "panic", "large", "wordy"} {
		w.ask(id, id)
	}
	w.ask("body", "larger than a body")
	for _, id := range []string{"well", "second", "later"} {
		require.Equal(t, "worked", w.Reaches(id, "open").Data.(*consumertest.Thing).Text)
	}
	require.Equal(t, "never", w.Reaches("terminal", "broken").LastError.Message)
	require.Equal(t, "internal", w.Reaches("panic", "broken").LastError.Code)
	require.Equal(t, "result-too-large", w.Reaches("large", "broken").LastError.Code)
	wordy := w.Reaches("wordy", "broken").LastError
	require.Equal(t, []string{strings.Repeat("c", 253) + "…", strings.Repeat("ü", 510) + "…"}, []string{wordy.Code, wordy.Message})
	require.Contains(t, w.Reaches("body", "broken").LastError.Message, "the result has 262154 bytes, 261120 are possible")
	w.Eventually("all tasks are acknowledged", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 0 })
}

// A handler that returns something else than the report takes fails its task: nobody waits for the deadline.
func TestAResultOfAnotherForm(t *testing.T) {
	t.Parallel()
	w := setup(t)
	k, err := New(Options{NC: w.connect()})
	require.NoError(t, err)
	Handle(k, Effect{Machine: "thing", Name: "work", Done: consumertest.Things.Effects[0].Done}, func(context.Context, Task[how]) (map[string]string, error) {
		return map[string]string{"greeting": "hi"}, nil
	})
	w.Also(k.Run)
	w.ask("a", "x")
	failure := w.Reaches("a", "broken").LastError
	require.Equal(t, []string{"result-invalid", "the result is refused: greeting: unknown field"}, []string{failure.Code, failure.Message})
	w.Eventually("the task is acknowledged", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 0 })
}

// Workers take the tasks of their route, and no others.
func TestRoute(t *testing.T) {
	t.Parallel()
	w := setup(t)
	by := func(name string) handler {
		return func(context.Context, Task[how]) (how, error) { return how{name}, nil }
	}
	w.serve(Options{}, by("all"))
	w.serveRoute("mars", Options{}, by("mars"))
	w.ask("here", "well")
	w.ask("there", "at mars")
	require.Equal(t, "all", w.Reaches("here", "open").Data.(*consumertest.Thing).Text)
	require.Equal(t, "mars", w.Reaches("there", "open").Data.(*consumertest.Thing).Text)
}

// A worker that dies in the middle is followed by another one, and its connection brings no second result.
func TestKill(t *testing.T) {
	t.Parallel()
	w := setup(t)
	nc, begun := w.connect(), make(chan struct{}, 1)
	w.serve(Options{NC: nc, Grace: time.Millisecond}, func(ctx context.Context, _ Task[how]) (how, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return how{"late"}, nil
	})
	w.ask("a", "x")
	<-begun
	nc.Close() // as kill -9 does: nothing is said any more
	w.serve(Options{}, worked)
	require.Equal(t, "worked", w.Reaches("a", "open").Data.(*consumertest.Thing).Text)
}

// A task that takes longer than the ack wait is not given to another one; on a machine that is held up for that long it may be, so it has three tries.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var calls atomic.Int64
	var end atomic.Pointer[chan struct{}]
	slow := func(context.Context, Task[how]) (how, error) {
		calls.Add(1)
		<-*end.Load()
		return how{"worked"}, nil
	}
	w.serve(Options{}, slow)
	w.serve(Options{}, slow)
	for _, id := range []string{"a", "b", "c"} {
		held := make(chan struct{})
		end.Store(&held)
		calls.Store(0)
		w.ask(id, "x")
		timer := time.NewTimer(time.Second) // two and a half ack waits
		<-timer.C
		n := calls.Load()
		close(held)
		if n == 1 {
			w.Reaches(id, "open")
			return
		}
	}
	require.Fail(t, "a task that was under way was given to another one, three times")
}

// Two that perform the same task: the machine takes one result.
func TestDoubleDelivery(t *testing.T) {
	t.Parallel()
	w := setup(t)
	k, err := New(Options{NC: w.connect()})
	require.NoError(t, err)
	begun := make(chan Task[how], 1)
	release := make(chan struct{})
	w.serve(Options{}, func(_ context.Context, t Task[how]) (how, error) {
		begun <- t
		<-release
		return how{"first"}, nil
	})
	w.ask("a", "x")
	task := <-begun
	second := &kind{w: k, machine: "thing", effect: "work", done: consumertest.Things.Effects[0].Done}
	require.NoError(t, second.report(t.Context(), &Task[json.RawMessage]{Machine: "thing", Namespace: "default", ID: "a", Effect: "work", Attempt: task.Attempt}, json.RawMessage(`{"how":"second"}`), nil))
	require.Equal(t, "second", w.Reaches("a", "open").Data.(*consumertest.Thing).Text)
	close(release)
	w.Eventually("the task is gone", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 0 })
	e, _ := w.Entity(consumertest.Things, "default.a")
	require.Equal(t, "second", e.Data.(*consumertest.Thing).Text)
}

// A worker that stops finishes within its grace; after it, what is left goes to another one at once.
func TestStop(t *testing.T) {
	t.Parallel()
	w := setup(t)
	begun, end := make(chan string, 2), make(chan struct{})
	causes := make(chan error, 2)
	stop := w.serve(Options{Grace: 300 * time.Millisecond}, func(ctx context.Context, t Task[how]) (how, error) {
		begun <- t.ID
		if t.ID == "quick" {
			<-end
			return how{"in time"}, nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return how{"too late"}, nil
	})
	w.ask("quick", "x")
	w.ask("slow", "x")
	<-begun
	<-begun
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	close(end)
	require.Equal(t, "in time", w.Reaches("quick", "open").Data.(*consumertest.Thing).Text)
	<-stopped
	require.ErrorIs(t, <-causes, ErrStopped)
	began := time.Now()
	w.serve(Options{}, worked)
	require.Equal(t, "worked", w.Reaches("slow", "open").Data.(*consumertest.Thing).Text)
	require.Less(t, time.Since(began), 20*time.Second)
}

// A worker says who it is, and how much it has under way.
func TestAWorkerSaysThatItIsThere(t *testing.T) {
	t.Parallel()
	w := setup(t)
	said, err := w.NC.SubscribeSync("instar.worker.>")
	require.NoError(t, err)
	require.NoError(t, w.NC.Flush())
	w.serve(Options{Name: "w-1", Version: "1.4", Concurrency: 3}, worked)
	m, err := said.NextMsg(time.Minute)
	require.NoError(t, err)
	require.Equal(t, "instar.worker.fx-thing-work", m.Subject)
	var body map[string]any
	require.NoError(t, json.Unmarshal(m.Data, &body))
	require.NotEmpty(t, body["id"])
	delete(body, "id")
	require.Equal(t, map[string]any{"queue": "fx-thing-work", "name": "w-1", "version": "1.4", "concurrency": 3.0, "running": 0.0}, body)
}

// A worker whose connection is closed ends with its kinds: it does not wait for its next word.
func TestAClosedConnectionEndsAWorker(t *testing.T) {
	t.Parallel()
	w := setup(t)
	said, err := w.NC.SubscribeSync("instar.worker.>")
	require.NoError(t, err)
	require.NoError(t, w.NC.Flush())
	nc := w.connect()
	k, err := New(Options{NC: nc})
	require.NoError(t, err)
	k.told = time.Hour
	Handle(k, Effect{Machine: "thing", Name: "work", Done: consumertest.Things.Effects[0].Done}, worked)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { done <- k.Run(ctx) }()
	_, err = said.NextMsg(time.Minute)
	require.NoError(t, err)
	nc.Close()
	select {
	case err := <-done:
		require.ErrorIs(t, err, nats.ErrConnectionClosed)
	case <-time.After(time.Minute):
		require.Fail(t, "it has not ended")
	}
}

// A handler is told when nobody waits for its task any more, and what it returns then is thrown away.
func TestUnwanted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	begun, cause := make(chan struct{}), make(chan error, 1)
	w.serve(Options{}, func(ctx context.Context, t Task[how]) (how, error) {
		close(begun)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return how{"late"}, nil
	})
	w.ask("a", "x")
	<-begun
	e, _ := w.Entity(consumertest.Things, "default.a")
	_, err := w.Commands.Send(t.Context(), publish.Command{Machine: "thing", Key: "default.a", Name: machines.CommandFailed, Body: []byte(fmt.Sprintf(`{"effect":"work","attempt":%q,"failure":{"code":"x","message":"given up"}}`, e.Effects["work"].ID))})
	require.NoError(t, err)
	require.ErrorIs(t, <-cause, ErrUnwanted)
	w.Reaches("a", "broken")
	w.Eventually("the task is gone", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 0 })
	require.Equal(t, "broken", w.state("a"))
}

// A result that no stream takes holds its place until nobody waits for it any more, and not for ever.
func TestAResultThatCannotBeStored(t *testing.T) {
	t.Parallel()
	w := setup(t)
	commands, err := w.JS.Stream(w.Ctx, w.Names.Stream(streams.CommandStream))
	require.NoError(t, err)
	c := commands.CachedInfo().Config
	c.MaxMsgSize = 4 << 10
	_, err = w.JS.UpdateStream(w.Ctx, c)
	require.NoError(t, err)
	done := make(chan struct{}, 1)
	w.serve(Options{Concurrency: 1}, func(_ context.Context, t Task[how]) (how, error) {
		if t.ID == "a" {
			defer func() { done <- struct{}{} }()
			return how{strings.Repeat("x", 8<<10)}, nil
		}
		return how{"worked"}, nil
	})
	w.ask("a", "x")
	<-done
	w.ask("b", "x")
	e, _ := w.Entity(consumertest.Things, "default.a")
	_, err = w.Commands.Send(t.Context(), publish.Command{Machine: "thing", Key: "default.a", Name: machines.CommandFailed, Body: []byte(fmt.Sprintf(`{"effect":"work","attempt":%q,"failure":{"code":"x","message":"its time is over"}}`, e.Effects["work"].ID))})
	require.NoError(t, err)
	w.Reaches("a", "broken")
	require.Equal(t, "worked", w.Reaches("b", "open").Data.(*consumertest.Thing).Text)
	w.Eventually("both tasks are acknowledged", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 0 })
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	_, err := New(Options{})
	require.ErrorContains(t, err, "a connection is needed")
}
