package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

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
// connections that it uses.
type Host struct {
	Config   config.Config
	Node     string // its name in the cluster
	Log      *slog.Logger
	Deps     consumers.Deps   // streams, their names, and the way in for commands, on the connection of the engine
	Member   *cluster.Node    // this node among those that share the work
	Embedded *embedded.Server // the NATS server in this process; nil when attached to another one
	Indexes  *index.Map       // of the machines
	Replicas int              // of a stream that the provider makes: as many as the server's own have

	app *app
}

// Connect opens a connection to NATS of the provider's own, which is closed when the server stops.
func (h *Host) Connect(name string) (*nats.Conn, jetstream.JetStream, error) {
	return h.app.connect(name)
}

// Go runs something until the server stops, which waits for it. When it ends before, the server ends with its error; what names it
// in messages.
func (h *Host) Go(ctx context.Context, what string, run func(context.Context) error) {
	h.app.goes(ctx, what, run)
}

// OnStop has stop called when the server stops, after everything that was started later has stopped.
func (h *Host) OnStop(what string, stop func(context.Context) error) { h.app.onStop(what, stop) }

// Register adds metrics to those of the server.
func (h *Host) Register(collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := h.app.registry.Register(c); err != nil {
			return fmt.Errorf("cannot register metrics: %w", err)
		}
	}
	return nil
}

// Writable is why nothing can be stored now, or nil.
func (h *Host) Writable() error { return h.app.disk.err() }

// API has set called with the options of the API before it listens; Limits are set by then.
func (h *Host) API(set func(*api.Options)) { h.app.doors = append(h.app.doors, set) }

// Check adds to what readiness is made of.
func (h *Host) Check(checks func() []admin.Check) {
	h.app.moreChecks = append(h.app.moreChecks, checks)
}

// Serving has do called once when the API listens, at url. Its error ends the server.
func (h *Host) Serving(do func(ctx context.Context, url string) error) {
	h.app.serving = append(h.app.serving, do)
}

// Say tells a person something in dev; elsewhere it says nothing.
func (h *Host) Say(format string, args ...any) { h.app.say(format, args...) }

// Try adds to what a person is told when a dev server has started: a line of what there is, and commands to try.
func (h *Host) Try(hint func(url string) (line, commands string)) {
	h.app.hints = append(h.app.hints, hint)
}

// Listens tells an address that the server, or what it has started, listens on; see [Host.OnListen].
func (h *Host) Listens(addr string) { h.app.listens(addr) }

// OnListen has tell called with every address that the server listens on, and will listen on: those that nothing must be talked
// into speaking to. The host of an address may be unspecified.
func (h *Host) OnListen(tell func(netip.AddrPort)) { h.app.own.follow(tell) }

// ownPorts are the addresses that this process listens on.
type ownPorts struct {
	mu    sync.Mutex
	known []netip.AddrPort
	tell  []func(netip.AddrPort)
}

func (o *ownPorts) add(at netip.AddrPort) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = append(o.known, at)
	for _, tell := range o.tell {
		tell(at)
	}
}

func (o *ownPorts) follow(tell func(netip.AddrPort)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.known {
		tell(at)
	}
	o.tell = append(o.tell, tell)
}
