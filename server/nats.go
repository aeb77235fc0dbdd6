package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server/natscli"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// startNATS brings up the streams: in the embedded server, or in the one attached to.
func (a *app) startNATS(ctx context.Context) error {
	nc, js, err := a.openNATS()
	if err != nil {
		return err
	}
	if err := a.tellDiffs(a.ensure(ctx, nc, js, a.plan())); err != nil {
		return err
	}
	names := a.basis.Names
	a.deps = consumers.Deps{NC: nc, JS: js, Names: names, Machines: a.machines, Log: a.log}
	if a.server != nil {
		a.deps.Acking, a.deps.EndAtStart, a.deps.Lacks = a.server.Acking(), a.server.EndAtStart, a.server.Lacks
	}
	if a.deps.Replicated, err = streams.Replicated(ctx, js, names); err != nil {
		return err
	}
	a.deps.Appender, a.deps.Commands, err = a.writers(nc, names)
	return err
}

func (a *app) tellDiffs(diffs []streams.Difference, err error) error {
	for _, d := range diffs {
		a.log.Warn("a stream is configured differently than by this version; leaving it unchanged", "difference", d.String())
	}
	return err
}

// openNATS claims the data, starts the embedded server, connects, and plans the streams.
func (a *app) openNATS() (*nats.Conn, jetstream.JetStream, error) {
	dir, err := claimData(a.cfg.Data, a.cfg.Node)
	if err != nil {
		return nil, nil, err
	}
	a.node, a.nonce, a.before = dir.node, dir.nonce, dir.before
	a.onStop("the data directory", func(context.Context) error { return dir.close() })
	most, events, dead := a.cfg.Store.Sizes()
	if !a.cfg.NATS.Attached() {
		a.server, err = embedded.Start(embedded.Options{
			Dir: a.cfg.Data, Listen: a.cfg.NATS.Listen, Profile: embedded.Profile(a.cfg.Durability), Users: a.cfg.NATS.Users, Open: a.cfg.AdmitsAllNATS(),
			TLSCert: a.cfg.NATS.TLS.Cert, TLSKey: a.cfg.NATS.TLS.Key, Names: streams.Names{Prefix: a.cfg.NATS.Prefix}, Name: a.node, Cluster: a.cfg.Cluster.Server(), MaxStore: most, Log: a.log,
		})
		if err != nil {
			return nil, nil, err
		}
		a.onStop("the embedded NATS server", a.server.Shutdown)
	}
	nc, js, err := a.connect("engine")
	if err != nil {
		return nil, nil, err
	}
	names := streams.Names{Prefix: a.cfg.NATS.Prefix}
	if serve := a.server.SyncServer(); serve != nil {
		sub, err := publish.ServeSync(nc, names, serve)
		if err != nil {
			return nil, nil, err
		}
		a.onStop("the answers to requests to sync", func(context.Context) error { return sub.Unsubscribe() })
	}
	a.basis = streams.Plan{Names: names, Replicas: a.cfg.NATS.Replicas, Idempotency: a.cfg.IdempotencyWindow, Events: events, DeadLetters: dead, Store: most, StoreSet: most > 0, Log: a.log}
	if a.cfg.Cluster.On() {
		a.basis.Node, a.basis.Replicas = a.node, a.cfg.Cluster.Replicas
	}
	return nc, js, nil
}

// plan is what streams there are to be, with the buckets of the machines that there are now, and of more.
func (a *app) plan(more ...*machines.Machine) streams.Plan {
	return a.planOf(append(slices.Clip(a.machines.All()), more...))
}

// planOf is what streams there are to be, with the buckets of some machines.
func (a *app) planOf(ms []*machines.Machine) streams.Plan {
	plan := a.basis
	for _, m := range ms {
		plan.States = append(plan.States, m.Plural)
		if a.provider(m.Name).Live {
			plan.Live = append(plan.Live, m.Plural)
		}
		for _, v := range m.Views {
			plan.Views = append(plan.Views, m.BucketOf(v))
		}
	}
	return plan
}

// dial opens a connection that its caller closes.
func (a *app) dial(name string) (*nats.Conn, jetstream.JetStream, error) {
	o := streams.ConnectOptions{
		Dial: natscli.Connect(a.cfg.NATS.Context), URL: cmp.Or(a.cfg.NATS.URL, a.cfg.NATS.Context), Creds: a.cfg.NATS.Creds, CA: a.cfg.NATS.TLS.CA, Cert: a.cfg.NATS.TLS.Cert, Key: a.cfg.NATS.TLS.Key, Name: name, Log: a.log,
	}
	if a.server != nil {
		o.Server = a.server
	}
	nc, err := streams.Connect(o)
	if err != nil {
		return nil, nil, err
	}
	js, err := streams.JetStream(nc)
	return nc, js, err
}

// connect opens a connection that is closed after everything that was started later.
func (a *app) connect(name string) (*nats.Conn, jetstream.JetStream, error) {
	return a.connectFor(&a.steps, name)
}

// connectFor opens a connection that some steps close.
func (a *app) connectFor(s *steps, name string) (*nats.Conn, jetstream.JetStream, error) {
	nc, js, err := a.dial(name)
	if err != nil {
		return nil, nil, err
	}
	nc.SetClosedHandler(func(*nats.Conn) { // it reconnects for ever, unless the server has closed it for good
		if !a.stopping.Load() {
			s.breaks(fmt.Errorf("the connection %q to NATS was closed for good: %w", name, cmp.Or(nc.LastError(), errors.New("by whoever has it"))))
		}
	})
	s.onStop("the connection "+name, func(context.Context) error {
		nc.SetClosedHandler(nil) // it is closed on purpose
		nc.Close()
		return nil
	})
	return nc, js, nil
}

// writers are an appender and the way in for commands on one connection.
func (a *app) writers(nc *nats.Conn, names streams.Names) (*publish.Appender, *publish.Commands, error) {
	synced := a.server.Syncer()
	group := embedded.Profile(a.cfg.Durability) == embedded.Fsync && !a.cfg.Cluster.On() && synced == nil // members group in their log
	moves := a.cfg.Cluster.On() || a.cfg.NATS.Attached()
	appender, err := publish.NewAppender(nc, publish.AppenderOptions{Names: names, Group: group, Sync: synced, Moves: moves})
	if err != nil {
		return nil, nil, err
	}
	a.onStop("an appender", func(context.Context) error { appender.Close(); return nil })
	commands, err := publish.NewCommands(appender)
	if err != nil {
		return nil, nil, err
	}
	if moves {
		commands.Again = 1500 * time.Millisecond // a leader of NATS may go with a command in its hands
	}
	a.onStop("the way in for commands", func(context.Context) error { commands.Close(); return nil })
	return appender, commands, nil
}

// writeNATSContext gives the embedded server a name for the nats CLI, if the configuration has one: with what the program itself connects with.
func (a *app) writeNATSContext(context.Context) error {
	user, password := a.server.Credentials()
	if a.cfg.NATS.Write != "" {
		return natscli.Write(a.cfg.NATS.Write, a.server.ClientURL(), user, password)
	}
	if user != "" && len(a.cfg.NATS.Users) == 0 {
		a.log.Info("the NATS listener accepts this program only; nats.users admits others, --write-nats-context the nats CLI", "nats", a.server.ClientURL())
	}
	return nil
}
