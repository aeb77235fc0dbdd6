package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/consumers/observer"
	"github.com/bcc94042/instar/consumers/views"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/systemd"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// app is a running server: what was started, and how to stop it, in reverse.
type app struct {
	cfg  config.Config
	opts Options
	log  *slog.Logger

	node     string
	nonce    string             // of this process
	before   []string           // of those before it, which have ended
	server   *embedded.Server   // nil when attached
	machines *machines.Registry // that all parts look into
	indexes  *index.Map         // of them
	deps     consumers.Deps
	engine   *engine.Engine
	plan     streams.Plan
	replicas *replicas     // nil: the server is no member of a cluster
	member   *cluster.Node // this process among those that share the work
	registry *prometheus.Registry
	disk     *disk
	dog      *watchdog
	work     map[string]Work // by name of machine
	own      ownPorts
	api      *api.Server
	url      string // of the HTTP listener

	// What providers add, see [Host].
	doors      []func(*api.Options)
	moreChecks []func() []admin.Check
	serving    []func(context.Context, string) error
	hints      []func(string) (string, string)

	stopping atomic.Bool
	stopped  <-chan struct{} // closed when the process is told to stop
	stops    []stopStep
	running  sync.WaitGroup
	broken   chan error // what ended although it should not
}

func newApp(cfg config.Config, opts Options, ms *machines.Registry, log *slog.Logger) *app {
	if opts.Out == nil {
		opts.Out = io.Discard
	}
	return &app{cfg: cfg, opts: opts, log: log, dog: newWatchdog(log), machines: ms, indexes: &index.Map{}, work: map[string]Work{}, broken: make(chan error, 8)}
}

// Run serves until ctx ends. It stops what it has started in reverse order, tells the service manager how it stands, and returns what
// went wrong. The log goes to standard error. A process that does not come to an end half a minute after it was told to is ended, with
// what all goroutines do, and exit code 1.
func Run(ctx context.Context, cfg config.Config, opts Options) error {
	if err := errors.Join(cfg.Validate(), opts.Validate(cfg)); err != nil {
		return err
	}
	ms, err := machines.NewRegistry(opts.Machines...)
	if err != nil {
		return err
	}
	log, err := NewLog(cfg.Log)
	if err != nil {
		return err
	}
	a := newApp(cfg, opts, ms, log)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer a.dog.end()
	context.AfterFunc(ctx, a.dog.begin) // a start may hang as well
	manager := systemd.FromEnvironment(log)
	err = a.start(inner)
	if err == nil {
		manager.Tell("READY=1\nSTATUS=Serving " + a.url)
		watched, end := context.WithCancel(context.WithoutCancel(ctx)) // also while it stops
		defer end()
		go manager.KeepAlive(watched, a.api.Handler())
		a.banner()
		select {
		case <-ctx.Done():
		case err = <-a.broken:
		}
	}
	a.stopping.Store(true)
	manager.Tell("STOPPING=1")
	log.Info("stopping")
	a.dog.begin()
	return errors.Join(err, a.shutdown(ctx))
}

// goes runs something that should end only when it is told to; onStop waits for it.
func (a *app) goes(ctx context.Context, what string, f func(context.Context) error) {
	inner, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(inner); inner.Err() == nil {
			a.broken <- fmt.Errorf("%s ended: %w", what, err)
		}
	}()
	a.stops = append(a.stops, stopStep{what, func(stop context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-stop.Done():
			return fmt.Errorf("%s does not stop", what)
		}
	}})
}

func (a *app) start(ctx context.Context) error {
	a.log.Info("configuration", append([]any{"mode", a.cfg.Mode}, a.cfg.Changes()...)...)
	a.log.Debug("the whole configuration", "config", a.cfg.String())
	// The parts outlive ctx until they are stopped one by one, in reverse.
	a.stopped = ctx.Done()
	ctx = context.WithoutCancel(ctx)
	for _, step := range []func(context.Context) error{
		a.checkPorts, a.startNATS, a.writeNATSContext, a.startDisk, a.startIndexes, a.startTelemetry, a.startNode, a.startReplicas,
		a.openProviders, a.startConsumers, a.startAPI, a.tellProviders,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// openProviders opens what serves each machine, before anything acts.
func (a *app) openProviders(ctx context.Context) error {
	h := &Host{Config: a.cfg, Node: a.node, Log: a.log, Deps: a.deps, Member: a.member, Embedded: a.server, Indexes: a.indexes, Replicas: a.plan.Replicas, app: a}
	for _, addr := range a.listeners() {
		a.listens(addr)
	}
	for _, m := range a.machines.All() {
		p := a.opts.Providers[m.Name]
		if p.Open == nil {
			continue
		}
		w, err := p.Open(ctx, h)
		if err != nil {
			return fmt.Errorf("cannot open the provider of %s: %w", m.Name, err)
		}
		a.work[m.Name] = w
	}
	return nil
}

// tellProviders has them do what needs an API that listens.
func (a *app) tellProviders(ctx context.Context) error {
	for _, do := range a.serving {
		if err := do(ctx, a.url); err != nil {
			return err
		}
	}
	return nil
}

// startConsumers runs what acts: the partitions that this node has, and the roles that it holds.
func (a *app) startConsumers(ctx context.Context) error {
	a.engine = &engine.Engine{Deps: a.deps, Node: a.member, Indexes: a.indexes}
	a.goes(ctx, "the engine", a.engine.Run)
	a.role(ctx, roleGateway, []func(context.Context) error{
		func(ctx context.Context) error { return a.deps.EachMachine(ctx, a.observe) },
		(&effects.Workers{Deps: a.deps, Performer: a.performer, Concurrency: a.cfg.Effects.Concurrency}).Run,
	})
	a.role(ctx, roleViews, []func(context.Context) error{
		(&views.Views{Deps: a.deps}).Run,
		(&streams.Copies{NC: a.deps.NC, Plan: a.plan, Log: a.log}).Run,
	})
	return nil
}

// observe looks at the world for one machine, where its provider can.
func (a *app) observe(ctx context.Context, m *machines.Machine) error {
	w := a.work[m.Name]
	if w.Looker == nil {
		return nil
	}
	return (&observer.Observer{Deps: a.deps, Machine: m, Looker: w.Looker, Index: a.indexes.Get(m.Name), Every: w.Every}).Run(ctx)
}

func (a *app) performer(machine string) effects.Performer {
	if w := a.work[machine]; !w.External {
		return w.Performer
	}
	return effects.External
}

// together runs all parts until ctx ends; the first error ends the others.
func together(ctx context.Context, parts []func(context.Context) error) error {
	group, inner := errgroup.WithContext(ctx)
	for _, p := range parts {
		group.Go(func() error { return p(inner) })
	}
	group.Go(func() error { <-inner.Done(); return nil })
	return group.Wait()
}
