package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/consumers/observer"
	"github.com/bcc94042/instar/consumers/views"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/disk"
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
	machines *registry.Registry // that all parts look into
	indexes  *index.Map         // of them
	deps     consumers.Deps
	engine   *engine.Engine
	basis    streams.Plan // without the buckets of machines, see [app.plan]
	indexing jetstream.JetStream
	replicas *replicas     // nil: the server is no member of a cluster
	member   *cluster.Node // this process among those that share the work
	registry *prometheus.Registry
	disk     *disk.Watch
	dog      *watchdog
	api      *api.Server
	url      string // of the HTTP listener

	// What serves the machines. A machine is added by whoever has the turn, see add.go.
	turn      chan struct{}
	beginning sync.WaitGroup // providers of machines that were added, when the turn is another one's
	added     steps          // that stop the machines that were added
	mu        sync.Mutex
	providers map[string]Provider // by name of machine
	work      map[string]Work     // by name of machine
	hosts     []*Host             // and what was added to each

	stopping atomic.Bool
	stopped  <-chan struct{} // closed when the process is told to stop
	steps
	running sync.WaitGroup
}

func newApp(cfg config.Config, opts Options, ms *registry.Registry, log *slog.Logger) *app {
	if opts.Out == nil {
		opts.Out = io.Discard
	}
	a := &app{
		cfg: cfg, opts: opts, log: log, dog: newWatchdog(log), machines: ms, indexes: &index.Map{}, turn: make(chan struct{}, 1),
		providers: map[string]Provider{}, work: map[string]Work{}, steps: steps{broken: make(chan error, 8)},
	}
	maps.Copy(a.providers, opts.Providers)
	return a
}

// Run serves until ctx ends. It stops what it has started in reverse order, tells the service manager how it stands, and returns what
// went wrong. The log goes to standard error. A process that does not come to an end half a minute after it was told to is ended, with
// what all goroutines do, and exit code 1.
func Run(ctx context.Context, cfg config.Config, opts Options) error {
	opts = opts.For(cfg)
	if err := errors.Join(cfg.Validate(), opts.Validate(cfg)); err != nil {
		return err
	}
	ms, err := registry.New(opts.Machines...)
	log, bad := NewLog(cfg.Log)
	if err := errors.Join(err, bad); err != nil {
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
	cancel()
	a.dog.at("a machine that is being added")
	a.turn <- struct{}{} // a machine that is being added is given up, and none is added any more
	a.beginning.Wait()
	return errors.Join(err, a.shutdown(ctx))
}

func (a *app) start(ctx context.Context) error {
	a.log.Info("configuration", append([]any{"mode", a.cfg.Mode}, a.cfg.Changes()...)...)
	a.log.Debug("the whole configuration", "config", a.cfg.String())
	// The parts outlive ctx until they are stopped one by one, in reverse.
	a.stopped = ctx.Done()
	ctx = context.WithoutCancel(ctx)
	for _, step := range []func(context.Context) error{
		a.checkPorts, a.startNATS, a.writeNATSContext, a.startDisk, a.startIndexes, a.startTelemetry, a.startNode, a.startReplicas,
		a.openProviders, a.startConsumers, a.startAPI,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// openProviders opens what serves each machine, before anything acts.
func (a *app) openProviders(ctx context.Context) error {
	h := a.host(&a.steps)
	a.hosts = append(a.hosts, h)
	a.onStop("the machines that were added", func(ctx context.Context) error { return a.added.stopAll(ctx, a.dog.at) })
	for _, addr := range a.listeners() {
		h.Listens(addr)
	}
	for _, m := range a.opts.Machines {
		if err := a.open(ctx, h, m); err != nil {
			return err
		}
	}
	if a.opts.Open == nil {
		return nil
	}
	err := a.during(ctx, func(ctx context.Context) error { return a.opts.Open(ctx, h) })
	return cmp.Or(err, a.stops())
}

// open opens what serves a machine.
func (a *app) open(ctx context.Context, h *Host, m *machines.Machine) error {
	p := a.provider(m.Name)
	if p.Open == nil {
		return nil
	}
	var w Work
	if err := a.during(ctx, func(ctx context.Context) (err error) { w, err = p.Open(ctx, h); return err }); err != nil {
		return fmt.Errorf("cannot open the provider of %s: %w", m.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.work[m.Name] = w
	return a.stops()
}

// stops is an error when the process is told to stop: what a provider has started with the context of its call has ended, also if it did not look.
func (a *app) stops() error {
	if a.told() {
		return errStops
	}
	return nil
}

func (a *app) provider(machine string) Provider {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.providers[machine]
}

func (a *app) workOf(machine string) Work {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.work[machine]
}

// startConsumers runs what acts: the partitions that this node has, and the roles that it holds.
func (a *app) startConsumers(ctx context.Context) error {
	copies := &streams.Copies{NC: a.deps.NC, Plan: func() streams.Plan { return a.plan() }, Log: a.log}
	if a.server != nil && !a.cfg.Cluster.On() { // before anything is written: where a power loss has left a copy with more than its origin, that shows only now
		if err := copies.Once(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("the readers' copies cannot be compared with what they copy", "error", err)
		}
	}
	a.engine = &engine.Engine{Deps: a.deps, Node: a.member, Indexes: a.indexes, DropAfter: a.cfg.DropAfter}
	a.goes(ctx, "the engine", a.engine.Run)
	a.role(ctx, RoleGateway, []func(context.Context) error{
		func(ctx context.Context) error { return a.deps.EachMachine(ctx, a.observe) },
		a.workers(false).Run,
	})
	a.goes(ctx, "what all nodes do", func(ctx context.Context) error { return a.member.While(ctx, a.workers(true).Run) })
	a.role(ctx, roleViews, []func(context.Context) error{
		(&views.Views{Deps: a.deps, Indexes: a.indexes}).Run,
		copies.Run,
	})
	return nil
}

// workers perform the effects that each node does, or the others.
func (a *app) workers(each bool) *effects.Workers {
	return &effects.Workers{
		Deps: a.deps, Concurrency: a.cfg.Effects.Concurrency,
		Serves:    func(machine string) bool { return (a.workOf(machine).EachNode != nil) == each },
		Performer: func(machine string) effects.Performer { return a.workOf(machine).Performer },
		Routes:    func(machine string) effects.Routes { return a.workOf(machine).Routes },
		Bounds:    func(machine string) map[string]int { return a.workOf(machine).EachNode },
		Takes:     a.member.Takes,
	}
}

// observe looks at the world for one machine, where its provider can.
func (a *app) observe(ctx context.Context, m *machines.Machine) error {
	w := a.workOf(m.Name)
	if w.Looker == nil {
		return nil
	}
	return (&observer.Observer{Deps: a.deps, Machine: m, Looker: w.Looker, Index: a.indexes.Get(m.Name), Every: w.Every}).Run(ctx)
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
