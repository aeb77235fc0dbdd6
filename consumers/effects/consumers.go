package effects

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// A task with a route (machines.Effect.Route) lies under instar.fx.<machine>.<effect>=<route>.<key>, from where workers elsewhere take it by the consumer
// fx-<machine>-<effect>=<route>. Nothing is taken from these here: lendRoutes keeps their consumers there, for the routes that the provider names.

// Routes are those that tasks of a machine have, or will have. They are other ones when changed is closed. Those that it does not name any more keep
// their consumer for as long as anybody pulls from it, and an hour.
type Routes func() (list []string, changed <-chan struct{})

const (
	routeIdle   = time.Hour
	routesEvery = 10 * time.Second // after which a consumer that somebody has removed is there again
)

// lend keeps the consumer there for workers elsewhere.
func (k *kind) lend(ctx context.Context) error {
	for {
		if _, err := k.consumer(ctx); err != nil {
			return err
		}
		if !wait.For(ctx, 5*time.Second) {
			return nil
		}
	}
}

func (k *kind) consumer(ctx context.Context) (jetstream.Consumer, error) {
	cons, err := k.w.Consumer(ctx, k.w.Names.Stream(streams.EffectStream), jetstream.ConsumerConfig{
		Durable: k.name, Description: k.fx.Doc, FilterSubject: k.filter, InactiveThreshold: k.idle,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: k.w.AckWait, MaxDeliver: -1,
		MaxAckPending: k.most, // more would wait here, and nobody would tell the server that they are in progress
		MemoryStorage: !k.w.Replicated,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open consumer %s: %w", k.name, err)
	}
	return cons, nil
}

// lendRoutes keeps the consumers of routes there.
func (k *kind) lendRoutes(ctx context.Context, routes Routes) error {
	for {
		list, changed := routes()
		for _, route := range list {
			queue := machines.Queue(k.fx.Name, route)
			one := &kind{w: k.w, m: k.m, fx: k.fx, name: streams.WorkerName(k.m.Name, queue), filter: k.w.Names.Effects(k.m.Name, queue), most: k.most, idle: routeIdle}
			if _, err := one.consumer(ctx); err != nil {
				return err
			}
		}
		again := time.NewTimer(routesEvery)
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil
		}
		again.Stop()
	}
}

// move puts a task into the queue that it belongs to, and reports whether that is another one than it was taken from: a program that did not know of routes has sent it.
func (k *kind) move(ctx context.Context, m jetstream.Msg, t *machines.Task) (bool, error) {
	if !k.fx.Routed || streams.Header(m.Headers(), streams.HeaderRoute) != "" {
		return false, nil
	}
	stored, err := k.w.Value(ctx, k.m, t.Key())
	if err != nil || kv.Absent(stored) {
		return false, err
	}
	e, err := k.m.Decode(stored.Data)
	if err != nil {
		return false, fmt.Errorf("the stored value of %s %s: %w: %w", k.m.Name, t.Key(), kv.ErrCorrupt, err)
	}
	for _, p := range k.m.Pending(e) {
		if p.Kind != machines.KindEffect || p.Name != t.Effect || p.Route == "" || e.Effects[t.Effect].ID != t.Attempt {
			continue
		}
		msg := &nats.Msg{Subject: k.w.Names.Effect(k.m.Name, p.Queue(), t.Key()), Data: m.Data(), Header: nats.Header{}}
		msg.Header.Set(streams.HeaderRoute, p.Route)
		msg.Header.Set(streams.HeaderID, fmt.Sprintf("%s/%s/moved/%s", k.m.Name, t.Key(), t.Attempt))
		if trace := streams.Header(m.Headers(), streams.HeaderTrace); trace != "" {
			msg.Header.Set(streams.HeaderTrace, trace)
		}
		if r := k.w.Appender.Append(ctx, []publish.Write{{Stream: k.w.Names.Stream(streams.EffectStream), Msg: msg}})[0]; r.Err != nil {
			return false, fmt.Errorf("cannot move a task into the queue %s: %w", p.Queue(), r.Err)
		}
		return true, m.DoubleAck(ctx)
	}
	return false, nil
}
