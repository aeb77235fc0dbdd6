package api

// Server, which assembles the packages below it. New makes the parts (open) and builds a router with all routes and documents
// (build), which package rest serves from then on (use); Prepare builds the next one for a machine that is added. HTTP requests
// go from Handler to the handlers that the routes name, in this package and those beside it; Micro starts the service over NATS.

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/console"
	"github.com/bcc94042/instar/api/documents"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/instances"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/operations"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/rpc"
	"github.com/bcc94042/instar/api/signin"
	"github.com/bcc94042/instar/api/watch"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/registry"
)

// Server is the API of one process. It is ready to serve when New returns.
type Server struct {
	requireIfMatch []string

	rest      *rest.Server
	store     *entities.Store
	sender    *commands.Sender
	rpc       *rpc.Server
	ops       *operations.Service
	admin     *admin.Service
	watches   *watch.Service
	console   *console.Console
	signin    *signin.Service    // nil has none
	instances *instances.Service // nil offers none
	more      []func(*rest.Router) []*rest.Route
	documents atomic.Pointer[documents.Set] // of the routes that are served
	version   admin.Version
	registry  *prometheus.Registry
}

// New checks the options and builds every operation. It fails when a bucket is missing, when an operation declares no
// role, and when two operations meet on one path.
func New(o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.orDefault()
	s := &Server{requireIfMatch: o.RequireIfMatch, version: o.Version, registry: o.Registry}
	if err := s.open(&o); err != nil {
		return nil, err
	}
	counts := s.rest.Counts()
	counts.Pools = append(append(counts.Pools, s.sender.Pending, s.ops.Running), o.Pools...)
	counts.Queues = append(counts.Queues, s.sender.Turns)
	counts.Quotas = append(counts.Quotas, s.sender.Quota)
	for _, c := range []prometheus.Collector{s.sender.Latency, counts, s.store.Collector()} {
		if err := o.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("api: cannot register metrics: %w", err)
		}
	}
	r, docs, err := s.build(o.Machines)
	if err != nil {
		return nil, err
	}
	s.use(r, docs)
	return s, nil
}

// open makes the parts in the order in which they need each other, and opens their buckets.
func (s *Server) open(o *Options) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if s.rest, err = rest.New(rest.Options{
		Tokens: o.Tokens, Users: o.Users, Open: o.Open, ReadOnly: o.ReadOnlyUI, Page: console.Pages(), Hosts: o.Hosts, Connections: o.Limits.Connections, Watches: o.Limits.Watches, Waits: o.Limits.Waits, Questions: o.Limits.Questions,
		Rate: limits.Pace{PerSecond: o.Limits.Rate, Burst: o.Limits.Burst}, Timeouts: o.Timeouts, TurnWithin: o.AnswerWithin, NC: o.NC, Version: o.Version.Version, Absent: o.Absent, Registry: o.Registry, Tracer: o.Tracer, Log: o.Log,
	}); err != nil {
		return err
	}
	if s.store, err = entities.Open(ctx, entities.Options{Machines: o.Machines, Names: o.Names, JS: o.JS, Indexes: o.Indexes, Behind: o.behind(), Rest: s.rest}); err != nil {
		return err
	}
	s.watches = watch.New(s.rest, s.store)
	if err := s.openConsole(o); err != nil {
		return err
	}
	if s.sender, err = commands.New(ctx, s.rest, s.store, commands.Options{
		Commands: o.Commands, AnswerWithin: o.AnswerWithin, Admit: o.Admit, Place: o.Place, Withdraw: o.Withdraw, Pending: o.Limits.Commands, AtOnce: o.Limits.CommandsAtOnce, Entities: o.Limits.Entities,
	}); err != nil {
		return err
	}
	s.rpc = rpc.New(s.rest, o.AnswerWithin/2)
	if s.ops, err = operations.New(ctx, s.rest, s.store, s.sender, o.KeysFor); err != nil {
		return err
	}
	if s.admin, err = admin.New(s.rest, s.store, s.sender, admin.Options{
		DeadLetters: o.DeadLetters, Nodes: o.Nodes, NodeLeads: o.NodeLeads, Outbox: o.Outbox, JS: o.JS, Backup: o.Backup, Ready: o.Ready, Checks: o.Checks,
		Buffers: o.Buffers, Version: o.Version, Profile: o.Profile, Metrics: o.Registry,
	}); err != nil {
		return err
	}
	if o.Discovery != nil {
		s.instances = instances.New(s.rest, s.store, s.sender, s.rpc, o.Discovery)
	}
	for _, more := range o.More {
		s.more = append(s.more, more(Parts{Rest: s.rest, Store: s.store, Sender: s.sender, JS: o.JS}))
	}
	return nil
}

// HasConsole reports whether this binary has the console.
func (s *Server) HasConsole() bool { return s.console.Has() }

// openConsole makes the console, and what lets people in who have no token.
func (s *Server) openConsole(o *Options) (err error) {
	of := console.Options{Version: o.Version.Version, Program: o.Program, ReadOnly: o.ReadOnlyUI, Links: console.Links{Trace: o.TraceURL, Grafana: o.GrafanaURL}}
	if o.SignIn != nil {
		of.Provider = &console.Provider{Name: o.SignIn.Host(), Href: o.SignIn.URL + signin.Path}
		s.signin, err = signin.New(s.rest, *o.SignIn)
	}
	s.console = console.New(s.rest, of)
	return err
}

// Prepare makes everything ready for a machine that is about to be registered: its buckets, and the routes and documents of all machines. Its
// index must be there. What it returns serves them, and is to be called when the machine is registered; until then, and after
// an error, clients see no change. It must not be called for a second machine before that.
func (s *Server) Prepare(ctx context.Context, m *machines.Machine) (serve func(), err error) {
	all, err := registry.New(append(slices.Clip(s.store.Machines.All()), m)...)
	if err != nil {
		return nil, err
	}
	if err := s.store.Open(ctx, m); err != nil {
		return nil, err
	}
	r, docs, err := s.build(all)
	if err != nil {
		return nil, err
	}
	if err := docs.Check(); err != nil {
		return nil, err
	}
	return func() {
		s.use(r, docs)
		if err := s.rpc.Renew(all.All()); err != nil {
			s.rest.Log.Warn("the micro service does not name all machines, but serves them", "error", err)
		}
	}, nil
}

func (s *Server) use(r *rest.Router, docs *documents.Set) {
	s.documents.Store(docs)
	s.rest.Use(r)
}

// build registers every operation of some machines, and documents them. Huma panics on a table that it cannot describe; that is an error.
func (s *Server) build(ms *registry.Registry) (r *rest.Router, docs *documents.Set, err error) {
	of := "the server"
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			err = fmt.Errorf("api: cannot build the operations of %s: %w", of, err)
		}
	}()
	r = s.rest.NewRouter()
	docs = documents.New(r, ms, s.store.Names)
	for _, rt := range slices.Concat(s.commonRoutes(r), docs.Routes()) { // before those of machines, whose names can be changed
		if err := r.Register(rt); err != nil {
			return nil, nil, err
		}
	}
	for _, m := range ms.All() {
		of = "the machine " + m.Name + ", which may need another name or plural"
		for _, rt := range s.machineRoutes(r, ms, m) {
			if err := r.Register(rt); err != nil {
				return nil, nil, err
			}
		}
	}
	if s.instances != nil {
		return r, docs, docs.Publish(s.instances.Describe)
	}
	return r, docs, docs.Publish()
}

// machineRoutes are the operations of one machine among others; each command that is no report becomes POST …/{id}/{command} (command.go).
func (s *Server) machineRoutes(r *rest.Router, ms *registry.Registry, m *machines.Machine) []*rest.Route {
	base := "/v1"
	if m.Parent != "" {
		base += "/" + entities.Plural(ms, m.Parent) + "/{" + m.Parent + "}"
	}
	base += "/" + m.Plural
	r.API.OpenAPI().Tags = append(r.API.OpenAPI().Tags, &huma.Tag{Name: m.Name, Description: m.Doc})
	routes := []*rest.Route{s.listRoute(r, m, base), s.entityRoute(r, m, base), s.eventsRoute(r, m, base), s.watches.RouteOf(m, base)}
	if m.Parent != "" {
		routes = append(routes, s.listAllRoute(r, m))
	}
	for _, v := range m.Views {
		routes = append(routes, s.viewRoute(m, v, base))
	}
	for _, c := range m.Commands() {
		routes = append(routes, s.commandRoute(r, m, c, base))
	}
	return append(routes, s.storedRoute(r, m, base), s.commandRoute(r, m, repairCommand, base))
}

func (s *Server) commonRoutes(r *rest.Router) []*rest.Route {
	routes := []*rest.Route{s.watches.Route()}
	if s.instances != nil {
		routes = append(routes, s.instances.Routes(r)...)
	}
	if s.signin != nil {
		routes = append(routes, s.signin.Routes()...)
	}
	for _, more := range s.more {
		routes = append(routes, more(r)...)
	}
	return slices.Concat(routes, s.graphRoutes(r), s.console.Routes(r), s.ops.Routes(r), s.admin.Routes(r))
}

// Handler serves everything: the operations, the documents and the answers to what is not there.
func (s *Server) Handler() http.Handler { return s.rest.Handler() }

// HTTPServer is a server for the handler with the limits of a public one: no client can hold a connection by sending slowly, or
// by taking an answer slowly, and no header is large. Its listener is to be one of [Server.Listen].
func (s *Server) HTTPServer(addr string, tlsConfig *tls.Config) *http.Server {
	return s.rest.HTTPServer(addr, tlsConfig)
}

// Listen bounds the connections of a listener. It goes below TLS: a handshake is one of them.
func (s *Server) Listen(l net.Listener) net.Listener { return s.rest.Listen(l) }

// OpenAPI is the document that /openapi.json serves; nil where that route answers an error.
func (s *Server) OpenAPI() []byte { return s.documents.Load().OpenAPI() }

// AsyncAPI is the document that /asyncapi.json serves; nil where that route answers an error.
func (s *Server) AsyncAPI() []byte { return s.documents.Load().AsyncAPI() }

// Operations are all operations, hidden ones included, in the order of their paths.
func (s *Server) Operations() []rest.Operation { return s.rest.Router().Operations() }

// Registry is where the process registers what else it measures; /metrics shows it.
func (s *Server) Registry() *prometheus.Registry { return s.registry }

// Micro starts the NATS micro service. Its subjects are guarded by the permissions of NATS: whoever may publish to
// <prefix>.api.cmd.> may send commands that are not for admins only, in every namespace that the permission names.
func (s *Server) Micro(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	endpoints := []rpc.Endpoint{
		{Name: "cmd", Tail: ">", Request: "the body of the command", Response: "machines.Answer", Handle: s.rpc.Asked(s.microCommand)},
		{Name: "get", Tail: ">", Request: "none", Response: "Entity", Handle: s.rpc.Beside(s.microGet)},
		{Name: "list", Tail: "*", Request: "ListRequest", Response: "Page", Handle: s.rpc.Beside(s.microList)},
	}
	if s.instances != nil {
		endpoints = append(endpoints, s.instances.Endpoint())
	}
	return s.rpc.Start(s.store.Names, s.version.Version, s.store.Machines.All(), endpoints...)
}

// Close ends the micro service, so that other nodes take what comes, and the watches with a last event. Other requests are not touched: they are
// answered, however long the engine takes, and their commands wait for no turns any more. Commands over NATS are given a second for that.
func (s *Server) Close() error {
	err := s.rpc.Stop()
	s.rest.EndWatches()
	s.sender.Release()
	s.rpc.Wait()
	s.rest.Wait()
	return err
}
