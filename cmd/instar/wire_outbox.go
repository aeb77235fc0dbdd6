package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/relay"
	provider "github.com/bcc94042/instar/providers/relay"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
)

// relayNamespace is where the entities of relays are.
const relayNamespace = "default"

// outboxes are the databases that this node relays.
type outboxes struct {
	a        *app
	provider *provider.Provider
	sources  map[string]config.OutboxSource
	private  *privatePostgres // nil when there is none to be
	nc       *nats.Conn
	js       jetstream.JetStream
	sent     map[string]*sentRows
}

// startOutbox runs relays for every configured source, as their entities want it. A private Postgres starts beside the
// rest.
func (a *app) startOutbox(ctx context.Context) error {
	nc, js, err := a.connect("outbox")
	if err != nil {
		return err
	}
	o := &outboxes{a: a, sources: map[string]config.OutboxSource{}, nc: nc, js: js, sent: map[string]*sentRows{}}
	for _, s := range a.cfg.Outbox.All(a.mode) {
		o.sources[s.Name] = s
	}
	if len(o.sources) == 0 && a.cfg.Outbox.Postgres == config.PostgresAuto {
		o.private = &privatePostgres{a: a, ready: make(chan struct{})}
		o.sources[config.SourceDev] = config.OutboxSource{Name: config.SourceDev}
		a.goes(ctx, "the private Postgres", o.private.run)
	}
	var list []provider.Source
	for name, s := range o.sources {
		o.sent[name] = &sentRows{}
		list = append(list, provider.Source{
			Name: name, Mode: cmp.Or(s.Mode, string(outbox.Log)), Open: func(ctx context.Context) (provider.Engine, error) { return o.open(ctx, s) },
			Fatal: func(err error) bool { var p *relay.PermanentError; return errors.As(err, &p) },
		})
	}
	o.provider = provider.New(provider.Options{Sources: list, Namespace: relayNamespace, Node: a.node, Log: a.log})
	a.outbox = o
	if err := a.registry.Register(o); err != nil {
		return fmt.Errorf("cannot register the metrics of the outbox: %w", err)
	}
	a.goes(ctx, "the relays", o.provider.Run)
	a.goes(ctx, "what relays are told", o.follow)
	a.goes(ctx, "the registration of relays", o.register)
	return nil
}

// config is what the relay of a source gets; of the private Postgres when that is ready.
func (o *outboxes) config(s config.OutboxSource) (outbox.Config, error) {
	if s.Name == config.SourceDev && o.private != nil {
		dsn, err := o.private.dsn()
		if err != nil {
			return outbox.Config{}, err
		}
		s.DSN = dsn
	}
	return s.Relayed()
}

// follow tells the provider what the entities want, for as long as ctx lasts.
func (o *outboxes) follow(ctx context.Context) error {
	ix := o.a.indexes[machine.Machine.Name]
	for ctx.Err() == nil {
		select {
		case <-ix.Ready():
		case <-ctx.Done():
			return nil
		}
		o.followOnce(ctx, ix)
	}
	return nil
}

func (o *outboxes) followOnce(ctx context.Context, ix *kv.Index) {
	sub := ix.Subscribe(kv.Filter{}, 256)
	defer sub.Close()
	for _, name := range o.provider.Sources() {
		if item, ok := ix.Get(machines.Key(relayNamespace, "", name)); ok {
			o.provider.Follow(name, item.State, item.Version)
		}
	}
	for {
		select {
		case c, ok := <-sub.C:
			if !ok {
				return // lost: list again
			}
			if ns, _, name, err := streams.SplitKey(c.Item.Key); err == nil && ns == relayNamespace && !c.Deleted {
				o.provider.Follow(name, c.Item.State, c.Item.Version)
			}
		case <-ctx.Done():
			return
		}
	}
}

// register asks for the entity of every source, until each is there. One that is there stays as it is.
func (o *outboxes) register(ctx context.Context) error {
	if o.private != nil {
		select {
		case <-o.private.ready:
			if _, err := o.private.dsn(); err != nil {
				<-ctx.Done() // there is nothing to relay
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
	var all sync.WaitGroup
	for _, name := range o.provider.Sources() {
		all.Go(func() {
			for wait := 100 * time.Millisecond; !o.registered(ctx, name); wait = min(2*wait, 5*time.Second) {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return
				}
			}
		})
	}
	all.Wait()
	<-ctx.Done()
	return nil
}

func (o *outboxes) registered(ctx context.Context, name string) bool {
	ix := o.a.indexes[machine.Machine.Name]
	select {
	case <-ix.Ready():
		if item, ok := ix.Get(machines.Key(relayNamespace, "", name)); ok && item.State != machine.Deleted {
			return true // a refusal would be an event of every start
		}
	case <-ctx.Done():
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	raw, err := o.a.deps.Commands.Ask(ctx, streams.Command{
		Machine: machine.Machine.Name, Key: machines.Key(relayNamespace, "", name), Name: machine.CommandRegister, Actor: "configuration", Reason: "a source of the configuration", Body: []byte("{}"),
	})
	if err != nil {
		return false
	}
	var answer machines.Answer
	if err := json.Unmarshal(raw, &answer); err != nil {
		return false
	}
	if r := answer.Refusal; r != nil && r.Code != machines.CodeExists {
		o.a.log.Warn("a relay was refused", "source", name, "reason", r.Message)
	}
	return true
}

// wake tells the relays of a source, on all nodes, that there is something to do.
func (o *outboxes) wake(source string) {
	_ = o.nc.Publish(relay.WakeSubject(o.a.deps.Names, source), nil) // lossy is fine: they poll
}

// why is the reason that there is no outbox here, or empty.
func (o *outboxes) why() string {
	switch {
	case o.private != nil:
		if _, err := o.private.dsn(); err != nil {
			return err.Error()
		}
	case len(o.sources) == 0:
		return "no database is named: give its DSN with --outbox-dsn, or name it under outbox.sources"
	}
	return ""
}

// Sources shows how all sources stand. Where no database is named there are none.
func (o *outboxes) Sources(ctx context.Context) ([]admin.OutboxSource, error) {
	names, reason := o.provider.Sources(), o.why()
	list := make([]admin.OutboxSource, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		list[i].Name = name
		if item, ok := o.a.indexes[machine.Machine.Name].Get(machines.Key(relayNamespace, "", name)); ok {
			list[i].State = item.State
		}
		if reason != "" {
			list[i].Problem = reason
			continue
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			s, err := o.provider.Status(ctx, name)
			if err != nil {
				list[i].Problem = "the database does not answer; see the relay's problem"
				o.a.log.Warn("a source cannot be looked at", "source", name, "error", err)
				return
			}
			list[i].Status = shownStatus(&s)
		})
	}
	all.Wait()
	return list, nil
}

func shownStatus(s *outbox.Status) *admin.OutboxStatus {
	out := &admin.OutboxStatus{
		Mode: string(s.Mode), Rows: s.Rows, Oldest: s.Oldest, Lag: s.Lag, FenceWait: s.FenceWait, Rate: s.Rate, SlotBytes: s.SlotBytes, Unread: s.Unread, Problem: s.Problem, At: s.At,
		Shards: []admin.OutboxShard{},
	}
	if out.Rows == nil {
		out.Rows = map[string]int64{}
	}
	for _, p := range s.Parked {
		out.Parked = append(out.Parked, admin.OutboxParked(p))
	}
	for _, h := range s.Shards {
		out.Shards = append(out.Shards, admin.OutboxShard(h))
	}
	return out
}
