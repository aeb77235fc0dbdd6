package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/embedded"
)

// Host is a server as a provider sees it: what it may use, and what it may add. It is there when the provider is opened, before
// anything acts, and outlives it: what the provider starts with [Host.Go] and [Host.OnStop] is stopped in reverse, before the
// connections that it uses. Where its machine is not added after all, that is then, and at once what it starts later; nothing else that it
// has asked for is done.
type Host struct {
	Config   config.Config
	Node     string // its name in the cluster
	Log      *slog.Logger
	Deps     consumers.Deps   // streams, their names, and the way in for commands, on the connection of the engine
	Member   *cluster.Node    // this node among those that share the work
	Embedded *embedded.Server // the NATS server in this process; nil when attached to another one
	Indexes  *index.Map       // of the machines
	Replicas int              // of a stream that the provider makes: as many as the server's own have

	app     *app
	steps   *steps
	opening atomic.Bool // it is that of a machine that is being added, whose provider is being opened

	mu      sync.Mutex // guards what a provider adds
	doors   []func(*api.Options)
	checks  []func() []admin.Check
	serving []func(context.Context, string) error
	hints   []func(string) (string, string)
	listens []netip.AddrPort
	shared  []any
}

// host is the server as providers see it whose parts some steps stop.
func (a *app) host(s *steps) *Host {
	return &Host{Config: a.cfg, Node: a.node, Log: a.log, Deps: a.deps, Member: a.member, Embedded: a.server, Indexes: a.indexes, Replicas: a.basis.Replicas, app: a, steps: s}
}

// each is what providers have added of one kind.
func each[T any](a *app, of func(*Host) []T) (all []T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.hosts {
		h.mu.Lock()
		all = append(all, of(h)...)
		h.mu.Unlock()
	}
	return all
}

// Connect opens a connection to NATS of the provider's own, which is closed when the server stops. When it is closed for good before,
// also by the provider, the server ends.
func (h *Host) Connect(name string) (*nats.Conn, jetstream.JetStream, error) {
	return h.app.connectFor(h.steps, name)
}

// Go runs something until the server stops, which waits for it. When it ends before, the server ends with its error; what names it
// in messages.
func (h *Host) Go(ctx context.Context, what string, run func(context.Context) error) {
	h.steps.goes(ctx, what, run)
}

// Role runs something on one node at a time, the one that holds the lease of the role, until the server stops. When that is lost, its context ends, and another node runs it.
func (h *Host) Role(ctx context.Context, name string, run func(context.Context) error) {
	o := h.app.roleOf(name)
	h.Go(ctx, "the role "+name, func(ctx context.Context) error { return o.Run(ctx, run) })
}

// OnStop has stop called when the server stops, after everything that was started later has stopped.
func (h *Host) OnStop(what string, stop func(context.Context) error) {
	h.steps.onStop(what, stop)
}

// Register adds metrics to those of the server.
func (h *Host) Register(collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := h.app.registry.Register(c); err != nil {
			return fmt.Errorf("cannot register metrics: %w", err)
		}
		h.OnStop("metrics", func(context.Context) error { h.app.registry.Unregister(c); return nil })
	}
	return nil
}

// Writable is why nothing can be stored now, or nil.
func (h *Host) Writable() error { return h.app.disk.Err() }

// API has set called with the options of the API before it listens; Limits are set by then. The provider of a machine that is added to a
// server that listens cannot be opened when it asks for that.
func (h *Host) API(set func(*api.Options)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doors = append(h.doors, set)
}

// Check adds to what readiness is made of.
func (h *Host) Check(checks func() []admin.Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, checks)
}

// Serving has do called once when the API listens, at url, and serves the machine. Its error ends the server. Its context is as that of
// [Provider.Open].
func (h *Host) Serving(do func(ctx context.Context, url string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serving = append(h.serving, do)
}

// Share lets providers of machines that come later in [Options.Machines] have something; see [Shared].
func (h *Host) Share(v any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shared = append(h.shared, v)
}

// Shared is what a provider that was opened earlier on this server has shared of a type, and false when there is none.
func Shared[T any](h *Host) (v T, ok bool) {
	for _, s := range each(h.app, func(h *Host) []any { return h.shared }) {
		if v, ok = s.(T); ok {
			return v, true
		}
	}
	return v, false
}

// Say tells a person something in dev; elsewhere it says nothing.
func (h *Host) Say(format string, args ...any) { h.app.say(format, args...) }

// Try adds to what a person is told when a dev server has started: a line of what there is, and commands to try.
func (h *Host) Try(hint func(url string) (line, commands string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hints = append(h.hints, hint)
}

// Listens tells an address that the server, or what it has started, listens on; see [Host.Listening].
func (h *Host) Listens(addr string) {
	if at, ok := listening(addr); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.listens = append(h.listens, at)
	}
}

// Listening are the addresses that the server listens on now: those that nothing must be talked into speaking to. The host of one may be
// unspecified. Those of a machine that is being added are among them when it was added.
func (h *Host) Listening() []netip.AddrPort {
	return each(h.app, func(h *Host) []netip.AddrPort { return h.listens })
}
