package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/nameserver"
	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/consumers/observer"
	"github.com/bcc94042/instar/consumers/views"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/probe"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
)

// app is a running server: what was started, and how to stop it, in reverse.
type app struct {
	cfg  config.Config
	mode string
	log  *slog.Logger
	out  io.Writer

	node     string
	nonce    string          // of this process
	before   []string        // of those before it, which have ended
	server   *streams.Server // nil when attached
	machines []*machines.Machine
	indexes  map[string]*kv.Index
	serving  providers.Serving
	deps     consumers.Deps
	engine   *engine.Engine
	plan     streams.Plan
	replicas *replicas      // nil: the server is no member of a cluster
	member   *cluster.Node  // this process among those that share the work
	shares   cluster.Shares // which partitions this node owns
	registry *prometheus.Registry
	disk     *disk
	outbox   *outboxes
	catalog  *discovery.Catalog
	dnsConns *limits.Pool // those of the name server
	xdsConns *limits.Pool
	checker  probe.Prober
	api      *api.Server
	url      string // of the HTTP listener
	sample   string // how the sample service of dev is

	stopping atomic.Bool
	stopped  <-chan struct{} // closed when the process is told to stop
	stops    []stopStep
	running  sync.WaitGroup
	broken   chan error // what ended although it should not
}

// run serves until ctx ends. It stops in reverse order and returns what went wrong.
func run(ctx context.Context, cfg config.Config, mode string, out io.Writer) error {
	for _, name := range cfg.HTTP.RequiringIfMatch() {
		if _, err := machineOf(name); err != nil {
			return fmt.Errorf("http.requireIfMatch: %w", err)
		}
	}
	log, err := newLog(cfg)
	if err != nil {
		return err
	}
	a := &app{cfg: cfg, mode: mode, log: log, out: out, machines: all.Machines(), indexes: map[string]*kv.Index{}, broken: make(chan error, 8)}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	dog := newWatchdog(log)
	defer dog.end()
	context.AfterFunc(ctx, dog.begin) // a start may hang as well
	manager := notifierFrom(log)
	err = a.start(inner)
	if err == nil {
		manager.tell("READY=1\nSTATUS=Serving " + a.url)
		watched, end := context.WithCancel(context.WithoutCancel(ctx)) // also while it stops
		defer end()
		go manager.alive(watched, a.api.Handler())
		a.banner()
		select {
		case <-ctx.Done():
		case err = <-a.broken:
		}
	}
	a.stopping.Store(true)
	manager.tell("STOPPING=1")
	log.Info("stopping")
	dog.begin()
	return errors.Join(err, a.shutdown(ctx, dog))
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
	a.log.Info("configuration", append([]any{"mode", a.mode}, a.cfg.Changes(a.mode)...)...)
	a.log.Debug("the whole configuration", "config", a.cfg.String())
	// The parts outlive ctx until they are stopped one by one, in reverse.
	a.stopped = ctx.Done()
	ctx = context.WithoutCancel(ctx)
	for _, step := range []func(context.Context) error{a.checkPorts, a.startNATS, a.writeNATSContext, a.startDisk, a.startIndexes, a.startGateway, a.startTelemetry, a.startNode, a.startReplicas, a.startDiscovery, a.startOutbox, a.startConsumers, a.startChecker, a.startAPI, a.startProbes, a.startNames, a.startSample} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startNATS brings up the streams: in the embedded server, or in the one attached to.
func (a *app) startNATS(ctx context.Context) error {
	nc, js, err := a.openNATS()
	if err != nil {
		return err
	}
	if err := a.tellDiffs(a.ensure(ctx, nc, js, a.plan)); err != nil {
		return err
	}
	names := a.plan.Names
	a.deps = consumers.Deps{NC: nc, JS: js, Names: names, Machines: a.machines, Log: a.log}
	if a.server != nil {
		a.deps.Acking = a.server.Acking()
	}
	if a.deps.Replicated, err = streams.Replicated(ctx, js, names); err != nil {
		return err
	}
	a.deps.Appender, a.deps.Commands, err = a.writers(nc, names)
	return err
}

func (a *app) tellDiffs(diffs []streams.Difference, err error) error {
	for _, d := range diffs {
		a.log.Warn("a stream is not as this program would make it; it is left as it is", "difference", d.String())
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
	a.onStop(func(context.Context) error { return dir.close() })
	most, events, dead := a.cfg.Store.Sizes()
	if !a.cfg.NATS.Attached() {
		a.server, err = streams.StartServer(streams.ServerOptions{
			Dir: a.cfg.Data, Listen: a.cfg.NATS.Listen, Profile: streams.Profile(a.cfg.Durability), Users: a.cfg.NATS.Users, Open: a.cfg.AdmitsAllNATS(a.mode),
			TLSCert: a.cfg.NATS.TLS.Cert, TLSKey: a.cfg.NATS.TLS.Key, Names: streams.Names{Prefix: a.cfg.NATS.Prefix}, Name: a.node, Cluster: a.cfg.Cluster.Server(), MaxStore: most, Log: a.log,
		})
		if err != nil {
			return nil, nil, err
		}
		a.onStop(a.server.Shutdown)
	}
	nc, js, err := a.connect("engine")
	if err != nil {
		return nil, nil, err
	}
	names := streams.Names{Prefix: a.cfg.NATS.Prefix}
	plan := streams.Plan{Names: names, Replicas: a.cfg.NATS.Replicas, Live: live, Idempotency: a.cfg.IdempotencyWindow, Events: events, DeadLetters: dead, Store: most, StoreSet: most > 0, Log: a.log}
	if a.cfg.Cluster.On() {
		plan.Node, plan.Replicas = a.node, a.cfg.Cluster.Replicas
	}
	for _, m := range a.machines {
		plan.States = append(plan.States, m.Plural)
		for _, v := range m.Views {
			plan.Views = append(plan.Views, m.BucketOf(v))
		}
	}
	a.plan = plan
	return nc, js, nil
}

// dial opens a connection that its caller closes.
func (a *app) dial(name string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := streams.Connect(streams.ConnectOptions{
		Server: a.server, Dial: natsContext(a.cfg.NATS.Context), URL: cmp.Or(a.cfg.NATS.URL, a.cfg.NATS.Context), Creds: a.cfg.NATS.Creds, CA: a.cfg.NATS.TLS.CA, Cert: a.cfg.NATS.TLS.Cert, Key: a.cfg.NATS.TLS.Key, Name: name, Log: a.log,
	})
	if err != nil {
		return nil, nil, err
	}
	js, err := streams.JetStream(nc)
	return nc, js, err
}

// connect opens a connection that is closed after everything that was started later.
func (a *app) connect(name string) (*nats.Conn, jetstream.JetStream, error) {
	nc, js, err := a.dial(name)
	if err != nil {
		return nil, nil, err
	}
	nc.SetClosedHandler(func(*nats.Conn) { // it reconnects for ever, unless the server has closed it for good
		if !a.stopping.Load() {
			a.broken <- fmt.Errorf("the connection %q to NATS was closed for good: %w", name, nc.LastError())
		}
	})
	a.onStop(func(context.Context) error { nc.Close(); return nil })
	return nc, js, nil
}

// writers are an appender and the way in for commands on one connection.
func (a *app) writers(nc *nats.Conn, names streams.Names) (*streams.Appender, *streams.Commands, error) {
	group := streams.Profile(a.cfg.Durability) == streams.Fsync && !a.cfg.Cluster.On() // members group in their log
	moves := a.cfg.Cluster.On() || a.cfg.NATS.Attached()
	appender, err := streams.NewAppender(nc, streams.AppenderOptions{Names: names, Group: group, Moves: moves})
	if err != nil {
		return nil, nil, err
	}
	a.onStop(func(context.Context) error { appender.Close(); return nil })
	commands, err := streams.NewCommands(appender)
	if err != nil {
		return nil, nil, err
	}
	if moves {
		commands.Again = 1500 * time.Millisecond // a leader of NATS may go with a command in its hands
	}
	a.onStop(func(context.Context) error { commands.Close(); return nil })
	return appender, commands, nil
}

// startConsumers runs what acts: the partitions that this node has, and the roles that it holds.
func (a *app) startConsumers(ctx context.Context) error {
	a.engine = &engine.Engine{Deps: a.deps, Node: a.member, Indexes: a.indexes}
	a.goes(ctx, "the engine", a.engine.Run)
	performers := map[string]effects.Performer{"service": a.serving, "relay": a.outbox.provider}
	lookers := map[string]observer.Looker{"service": a.serving, "relay": a.outbox.provider}
	var external []string
	if a.cfg.Gateway == config.GatewayExternal {
		external = []string{"service"}
		delete(lookers, "service")
	}
	gateway := []func(context.Context) error{
		(&effects.Workers{Deps: a.deps, Performers: performers, External: external, Concurrency: a.cfg.Effects.Concurrency}).Run,
	}
	for _, m := range a.machines {
		if looker := lookers[m.Name]; looker != nil {
			o := &observer.Observer{Deps: a.deps, Machine: m, Looker: looker, Index: a.indexes[m.Name]}
			if m.Name == "service" {
				o.Every = a.cfg.Observe.Every
			}
			gateway = append(gateway, o.Run)
		}
	}
	a.role(ctx, roleGateway, gateway)
	a.role(ctx, roleViews, []func(context.Context) error{
		(&views.Views{Deps: a.deps}).Run,
		(&streams.Copies{NC: a.deps.NC, Plan: a.plan, Log: a.log}).Run,
	})
	return nil
}

// together runs all parts and returns when all have ended; the first error ends the others.
func together(ctx context.Context, parts []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() {
			if errs[i] = p(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (a *app) startAPI(ctx context.Context) error {
	nc, js, err := a.connect("api")
	if err != nil {
		return err
	}
	appender, commands, err := a.writers(nc, a.deps.Names)
	if err != nil {
		return err
	}
	commands.Gate = a.disk.err
	b := thisBuild()
	files, _ := openFiles() // 0 where nobody says
	bounds := a.cfg.Limits.API(files)
	a.tellLimits(bounds)
	a.dnsConns, a.xdsConns = limits.NewPool("dns-connections", nameserver.DefaultConnections), limits.NewPool("xds-connections", bounds.Connections)
	a.api, err = api.New(api.Options{
		Machines: a.machines, Commands: commands, NC: nc, JS: js, Names: a.deps.Names, Indexes: a.indexes,
		DeadLetters: letters{streams.DeadLetters{JS: js, Names: a.deps.Names, Appender: appender}},
		Outbox:      a.outbox,
		Backup:      a.backup,
		Discovery:   a.catalog,
		Nodes:       nodes{a.member}, NodeLeads: a.leads,
		Tokens: a.cfg.Auth.APITokens(), Users: a.cfg.NATS.APIUsers(), Open: len(a.cfg.Auth.Tokens) == 0, Hosts: a.cfg.HTTP.AllowedHosts(), RequireIfMatch: a.cfg.HTTP.RequiringIfMatch(), KeysFor: a.cfg.IdempotencyWindow,
		Admit: a.admit, Limits: bounds, Timeouts: a.cfg.HTTP.APITimeouts(), Pools: []*limits.Pool{a.dnsConns, a.xdsConns},
		Ready: func() bool { return !a.stopping.Load() }, Checks: a.checks,
		Version: admin.Version{Version: b.Version, Commit: b.Commit, Built: b.Date}, Profile: a.profile(),
		Registry: a.registry, Tracer: tracer(), Log: a.log,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(a.api.Micro(ctx), a.startPending(ctx, js)); err != nil {
		return err
	}
	tlsConfig, err := serverTLS(config.TLS{Cert: a.cfg.HTTP.TLS.Cert, Key: a.cfg.HTTP.TLS.Key}, a.log)
	if err != nil {
		return fmt.Errorf("HTTP listener: %w", err)
	}
	listener, err := net.Listen("tcp", a.cfg.HTTP.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen for HTTP (choose another address with --http): %w", err)
	}
	a.avoid(listener.Addr().String())
	a.url = "http://" + listener.Addr().String()
	listener = a.api.Listen(listener)
	if tlsConfig != nil {
		listener = tls.NewListener(listener, tlsConfig)
		a.url = "https://" + listener.Addr().String()
	}
	a.member.Announce(a.url)
	srv := a.api.HTTPServer(a.cfg.HTTP.Listen, tlsConfig)
	a.running.Go(func() {
		if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.broken <- fmt.Errorf("the HTTP server ended: %w", err)
		}
	})
	a.onStop(func(stop context.Context) error {
		err := a.api.Close() // ends the watches, which Shutdown would wait for
		err = errors.Join(err, srv.Shutdown(stop))
		a.running.Wait()
		return err
	})
	return nil
}
