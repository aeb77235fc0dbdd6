package effects

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// restless begins its effect anew with each command, before the one before has ended.
var restless = machines.Define(machines.Definition[consumertest.Thing]{
	Name: "restless", Plural: "restlesses", Doc: "For tests of effects that are superseded.",
	States: []machines.State[consumertest.Thing]{{Name: "open"}, {Name: "done", Terminal: true}},
	Inputs: []machines.Command{{Name: "create", Birth: true}, {Name: "again"}, {Name: "done", Report: true, Body: consumertest.WorkBody{}}, {Name: "fail", Report: true, Body: machines.Failure{}}},
	Effects: []machines.Effect[consumertest.Thing]{{
		Name: "work", Done: "done", Failed: "fail", Timeout: time.Minute, Payload: func(*machines.Tx[consumertest.Thing]) any { return consumertest.WorkBody{} },
	}},
	Events: []machines.EventType{{Name: "restless.moved", Class: machines.ClassState}},
	Edges: []machines.Edge[consumertest.Thing]{
		{From: []string{machines.None}, On: "create", To: "open", Emit: []string{"restless.moved"}, Effects: []string{"work"}},
		{From: []string{"open"}, On: "again", To: machines.Same, Emit: []string{"restless.moved"}, Effects: []string{"work"}},
		{From: []string{"open"}, On: "done", To: "done", Emit: []string{"restless.moved"}},
		{From: []string{"open"}, On: "fail", To: "done", Emit: []string{"restless.moved"}},
	},
})

// patient takes its time for one entity, and none for others.
type patient struct{ begun, under atomic.Int64 }

func (p *patient) Perform(ctx context.Context, t machines.Task) machines.Result {
	if t.ID == "storm" {
		p.under.Add(1)
		defer p.under.Add(-1)
		p.begun.Add(1)
		<-ctx.Done()
	}
	return machines.Result{Data: consumertest.WorkBody{How: "worked"}}
}

// Whatever is asked of one entity, one task of it is performed at a time: those before end when the next one begins, and the places are there
// for others.
func TestOneEntityTakesOnePlace(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, restless).start()
	p := &patient{}
	w.Also((&Workers{Deps: w.Deps, Performer: ByMachine{"restless": p}.Of, Concurrency: 4}).Run)
	to := func(id, command string) publish.Command {
		return publish.Command{Machine: "restless", Key: "default." + id, Name: command}
	}
	w.Ask(to("storm", "create"))
	for i := range int64(8) {
		w.Eventually("it is begun", func() bool { return p.begun.Load() > i })
		w.Ask(to("storm", "again"))
	}
	w.Ask(to("calm", "create"))
	w.Eventually("the other one is done", func() bool { e, _ := w.Entity(restless, "default.calm"); return e.State == "done" })
	w.Eventually("one is left", func() bool { return p.under.Load() == 1 && p.begun.Load() == 9 })
	e, _ := w.Entity(restless, "default.storm")
	require.Equal(t, "open", e.State, "no result of those before was taken")
}

type performed func(context.Context, machines.Task) machines.Result

func (p performed) Perform(ctx context.Context, t machines.Task) machines.Result { return p(ctx, t) }

// An entity that was purged and created anew begins with fence 1. Its task is the one that it waits for, although one of its life before, with
// a higher fence, is still under way here.
func TestAHigherFenceOfAnEarlierLife(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, restless).start()
	var begun, ended atomic.Int64
	w.Also((&Workers{Deps: w.Deps, Concurrency: 4, Performer: ByMachine{"restless": performed(func(ctx context.Context, _ machines.Task) machines.Result {
		if begun.Add(1) <= 2 { // of the life before
			<-ctx.Done()
			ended.Add(1)
		}
		return machines.Result{Data: consumertest.WorkBody{How: "worked"}}
	})}.Of}).Run)
	to := func(command string) publish.Command {
		return publish.Command{Machine: "restless", Key: "default.x", Name: command}
	}
	for i, command := range []string{"create", "again"} {
		w.Ask(to(command))
		w.Eventually("its task is begun", func() bool { return begun.Load() == int64(i)+1 })
	}
	w.Stop()
	require.NoError(t, w.Bucket("restlesses").Purge(w.Ctx, "default.x"))
	for _, name := range []string{w.Names.Stream(streams.EventStream), "KV_" + w.Names.Bucket(streams.IdempotencyBucket)} {
		s, err := w.JS.Stream(w.Ctx, name)
		require.NoError(t, err)
		require.NoError(t, s.Purge(w.Ctx))
	}
	w.start()
	require.EqualValues(t, 1, w.Ask(to("create")).Version)
	w.Eventually("it is done", func() bool { e, _ := w.Entity(restless, "default.x"); return e.State == "done" })
	w.Eventually("the one before has ended", func() bool { return ended.Load() == 2 })
}

// The owner of a partition and the next one may both have sent the task of an attempt. Only one of the two messages is performed: the second waits until the first has ended, and is
// not wanted then.
func TestASecondMessageOfAnAttempt(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, restless).start()
	var begun atomic.Int64
	end := make(chan struct{})
	w.Also((&Workers{Deps: w.Deps, Concurrency: 4, Performer: ByMachine{"restless": performed(func(ctx context.Context, _ machines.Task) machines.Result {
		begun.Add(1)
		select {
		case <-end:
		case <-ctx.Done():
		}
		return machines.Result{Data: consumertest.WorkBody{How: "worked"}}
	})}.Of}).Run)
	w.Ask(publish.Command{Machine: "restless", Key: "default.x", Name: "create"})
	w.Eventually("its task is begun", func() bool { return begun.Load() == 1 })
	effects := w.Names.Stream(streams.EffectStream)
	first := w.Stream(effects, ">")
	require.Len(t, first, 1)
	w.Publish(&nats.Msg{Subject: first[0].Subject, Data: first[0].Data})
	w.Eventually("the second waits for its next delivery", func() bool {
		s, err := w.JS.Stream(w.Ctx, effects)
		require.NoError(t, err)
		for c := range s.ListConsumers(w.Ctx).Info() {
			if c.NumRedelivered > 0 {
				return true
			}
		}
		return false
	})
	close(end)
	w.Eventually("it is done", func() bool { e, _ := w.Entity(restless, "default.x"); return e.State == "done" })
	w.Eventually("both are taken away", func() bool { return len(w.Stream(effects, ">")) == 0 })
	require.EqualValues(t, 1, begun.Load())
}
