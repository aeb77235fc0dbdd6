package effects

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// routes are what a provider knows of.
type routes struct {
	mu      sync.Mutex
	list    []string
	changed chan struct{}
}

func (r *routes) of() ([]string, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list, r.changed
}

func (r *routes) add(route string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, route)
	close(r.changed)
	r.changed = make(chan struct{})
}

// routed is a world whose workers keep the queues of routes.
func routed(t *testing.T) (*world, *consumertest.Worker, *routes) {
	t.Helper()
	w, r, k := setup(t, embedded.Interval, consumertest.Things).start(), &routes{changed: make(chan struct{})}, consumertest.NewWorker()
	w.Also((&Workers{Deps: w.Deps, Performer: ByMachine{"thing": k}.Of, Routes: func(string) Routes { return r.of }}).Run)
	return w, k, r
}

func (w *world) next(queue string) jetstream.Msg {
	w.T.Helper()
	var cons jetstream.Consumer
	w.Eventually("the queue "+queue, func() (there bool) {
		var err error
		cons, err = w.JS.Consumer(w.Ctx, streams.EffectStream, queue)
		return err == nil
	})
	m, err := cons.Next()
	require.NoError(w.T, err)
	return m
}

// A task whose data names a route waits in its own queue, also while that is not there, and is not taken from that of all.
func TestRoutes(t *testing.T) {
	t.Parallel()
	w, k, r := routed(t)
	r.add("moon")
	for _, id := range []string{"a", "here"} {
		w.Ask(consumertest.ToThing(id, "create", ""))
	}
	w.Ask(consumertest.ToThing("a", "work", `{"how":"at mars"}`))
	w.Ask(consumertest.ToThing("here", "work", `{"how":"at Nowhere"}`)) // no DNS label
	w.Reaches("here", "open")
	w.Eventually("its task", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.thing.work=mars.default.a")) == 1 })
	_, err := w.JS.Consumer(w.Ctx, streams.EffectStream, "fx-thing-work=mars")
	require.ErrorIs(t, err, jetstream.ErrConsumerNotFound)
	r.add("mars")
	m := w.next("fx-thing-work=mars")
	require.Equal(t, "mars", m.Headers().Get(streams.HeaderRoute))
	var task machines.Task
	require.NoError(t, json.Unmarshal(m.Data(), &task))
	require.Equal(t, "a", task.ID)
	require.NoError(t, m.DoubleAck(w.Ctx))
	k.Mu.Lock()
	defer k.Mu.Unlock()
	require.Zero(t, k.Tries["default.a"])
}

// What a program without routes has put into the queue of all is moved into its own, and not performed here. An entity that waits for it is not sent another one.
func TestATaskOfAnOlderProgramIsMoved(t *testing.T) {
	t.Parallel()
	w, k, r := routed(t)
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "work", `{"how":"at mars"}`))
	var stored []*jetstream.RawStreamMsg
	w.Eventually("its task", func() bool {
		stored = w.Stream(streams.EffectStream, "instar.fx.thing.work=mars.default.a")
		return len(stored) == 1
	})
	s, err := w.JS.Stream(w.Ctx, streams.EffectStream)
	require.NoError(t, err)
	require.NoError(t, s.Purge(w.Ctx))
	_, err = w.JS.Publish(context.Background(), "instar.fx.thing.work.default.a", stored[0].Data)
	require.NoError(t, err)
	r.add("mars")
	m := w.next("fx-thing-work=mars")
	require.JSONEq(t, string(stored[0].Data), string(m.Data()))
	require.NoError(t, m.DoubleAck(w.Ctx))
	w.Eventually("nothing else is there", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 0 })
	k.Mu.Lock()
	defer k.Mu.Unlock()
	require.Zero(t, k.Tries["default.a"])
}
