// Package relays serves machines/relay: it relays the outboxes that the configuration names, as their entities want it.
//
// A row of the configuration becomes a source of providers/relay, whose engine (engine.go) is a relay of streams/outbox/relay, made
// anew for each run. Where no database is named, dev starts a private Postgres (postgres.go). The API shows and changes rows through
// operate.go. [Alone] relays one database without a server.
package relays

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/relay"
	provider "github.com/bcc94042/instar/providers/relay"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
	"github.com/bcc94042/instar/streams/publish"
)

// relayNamespace is where the entities of relays are.
const relayNamespace = "default"

// outboxes are the databases that this node relays.
type outboxes struct {
	h        *server.Host
	provider *provider.Provider
	sources  map[string]config.OutboxSource
	private  *privatePostgres // nil when there is none to be
	nc       *nats.Conn
	js       jetstream.JetStream
	sent     map[string]*sentRows
}

// Provider serves machines/relay: relays of the outboxes that the configuration names run as their entities want it.
func Provider() server.Provider { return server.Provider{Open: openRelays} }

// openRelays runs relays for every configured source. A private Postgres starts beside the rest.
func openRelays(ctx context.Context, h *server.Host) (server.Work, error) {
	nc, js, err := h.Connect("outbox")
	if err != nil {
		return server.Work{}, err
	}
	o := &outboxes{h: h, sources: map[string]config.OutboxSource{}, nc: nc, js: js, sent: map[string]*sentRows{}}
	for _, s := range h.Config.Outbox.All(h.Config.Mode) {
		o.sources[s.Name] = s
	}
	if len(o.sources) == 0 && h.Config.Outbox.Postgres == config.PostgresAuto {
		o.private = &privatePostgres{h: h, ready: make(chan struct{})}
		o.sources[config.SourceDev] = config.OutboxSource{Name: config.SourceDev}
		h.Go(ctx, "the private Postgres", o.private.run)
	}
	var list []provider.Source
	for name, s := range o.sources {
		o.sent[name] = &sentRows{}
		list = append(list, provider.Source{
			Name: name, Mode: cmp.Or(s.Mode, string(outbox.Log)), Open: func(ctx context.Context) (provider.Engine, error) { return o.open(ctx, s) },
			Fatal: func(err error) bool { var p *relay.PermanentError; return errors.As(err, &p) },
		})
	}
	o.provider = provider.New(provider.Options{Sources: list, Namespace: relayNamespace, Node: h.Node, Log: h.Log})
	if err := h.Register(o); err != nil {
		return server.Work{}, err
	}
	h.API(func(d *api.Options) { d.Outbox = o })
	h.Go(ctx, "the relays", o.provider.Run)
	h.Go(ctx, "what relays are told", o.follow)
	h.Go(ctx, "the registration of relays", o.register)
	return server.Work{Performer: o.provider, Looker: o.provider}, nil
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
	ix := o.h.Indexes.Get(machine.Machine.Name)
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

func (o *outboxes) followOnce(ctx context.Context, ix *index.Index) {
	sub := ix.Subscribe(index.Filter{}, 256)
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
			for pause := 100 * time.Millisecond; !o.registered(ctx, name); pause = min(2*pause, 5*time.Second) {
				if !wait.For(ctx, pause) {
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
	ix := o.h.Indexes.Get(machine.Machine.Name)
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
	raw, err := o.h.Deps.Commands.Ask(ctx, publish.Command{
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
		o.h.Log.Warn("a relay was refused", "source", name, "reason", r.Message)
	}
	return true
}

// wake tells the relays of a source, on all nodes, that there is something to do.
func (o *outboxes) wake(source string) {
	_ = o.nc.Publish(relay.WakeSubject(o.h.Deps.Names, source), nil) // lossy is fine: they poll
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
		if item, ok := o.h.Indexes.Get(machine.Machine.Name).Get(machines.Key(relayNamespace, "", name)); ok {
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
				if errors.Is(err, outbox.ErrSchema) {
					list[i].Problem = err.Error()
				}
				o.h.Log.Warn("the status of a source cannot be read", "source", name, "error", err)
				return
			}
			list[i].Status = Shown(&s)
		})
	}
	all.Wait()
	return list, nil
}

// Shown is how an outbox stands as the API shows it.
func Shown(s *outbox.Status) *admin.OutboxStatus {
	out := &admin.OutboxStatus{
		Mode: string(s.Mode), Rows: s.Rows, Oldest: s.Oldest, Lag: s.Lag, FenceWait: s.FenceWait, Rate: s.Rate, Problem: s.Problem, At: s.At,
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
