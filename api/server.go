package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/documents"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/instances"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/operations"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/rpc"
	"github.com/bcc94042/instar/machines"
)

// Server is the door. It is ready to serve when it was made.
type Server struct {
	requireIfMatch []string

	rest      *rest.Server
	store     *entities.Store
	sender    *commands.Sender
	rpc       *rpc.Server
	ops       *operations.Service
	admin     *admin.Service
	instances *instances.Service // nil offers none
	documents *documents.Set
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
	if err := s.routesOf(); err != nil {
		return nil, err
	}
	if err := s.documents.Publish(); err != nil {
		return nil, err
	}
	s.rest.Begin()
	return s, nil
}

// open makes the parts, from below, and opens the buckets that they need.
func (s *Server) open(o *Options) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if s.rest, err = rest.New(rest.Options{
		Tokens: o.Tokens, Users: o.Users, Open: o.Open, Hosts: o.Hosts, Connections: o.Limits.Connections, Watches: o.Limits.Watches, Waits: o.Limits.Waits, Questions: o.Limits.Questions,
		Rate: limits.Pace{PerSecond: o.Limits.Rate, Burst: o.Limits.Burst}, Timeouts: o.Timeouts, TurnWithin: o.AnswerWithin, NC: o.NC, Version: o.Version.Version, Registry: o.Registry, Tracer: o.Tracer, Log: o.Log,
	}); err != nil {
		return err
	}
	if s.store, err = entities.Open(ctx, entities.Options{Machines: o.Machines, Names: o.Names, JS: o.JS, Indexes: o.Indexes, Behind: o.behind(), Rest: s.rest}); err != nil {
		return err
	}
	if s.sender, err = commands.New(ctx, s.rest, s.store, commands.Options{
		Commands: o.Commands, AnswerWithin: o.AnswerWithin, Admit: o.Admit, Pending: o.Limits.Commands, AtOnce: o.Limits.CommandsAtOnce, Entities: o.Limits.Entities,
	}); err != nil {
		return err
	}
	s.rpc = rpc.New(s.rest, o.AnswerWithin/2)
	if s.ops, err = operations.New(ctx, s.rest, s.store, s.sender, o.KeysFor); err != nil {
		return err
	}
	if s.admin, err = admin.New(s.rest, s.store, admin.Options{
		DeadLetters: o.DeadLetters, Nodes: o.Nodes, NodeLeads: o.NodeLeads, Outbox: o.Outbox, Backup: o.Backup, Ready: o.Ready, Checks: o.Checks,
		Version: o.Version, Profile: o.Profile, Metrics: o.Registry,
	}); err != nil {
		return err
	}
	s.documents = documents.New(s.rest, s.store)
	if o.Discovery != nil {
		s.instances = instances.New(s.rest, s.store, s.sender, s.rpc, o.Discovery)
		s.documents.Describe(s.instances.Describe)
	}
	return nil
}

// routesOf registers every operation. Huma panics on a table that it cannot describe; that is an error of New.
func (s *Server) routesOf() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("api: cannot build the operations: %v", p)
		}
	}()
	var all []*rest.Route
	for _, m := range s.store.Machines {
		all = append(all, s.machineRoutes(m)...)
	}
	all = append(all, s.commonRoutes()...)
	for _, rt := range all {
		if err := s.rest.Register(rt); err != nil {
			return err
		}
	}
	return nil
}

// machineRoutes are the operations of one machine.
func (s *Server) machineRoutes(m *machines.Machine) []*rest.Route {
	base := "/v1"
	if m.Parent != "" {
		base += "/" + s.store.Plural(m.Parent) + "/{" + m.Parent + "}"
	}
	base += "/" + m.Plural
	s.rest.API.OpenAPI().Tags = append(s.rest.API.OpenAPI().Tags, &huma.Tag{Name: m.Name, Description: m.Doc})
	routes := []*rest.Route{s.listRoute(m, base), s.entityRoute(m, base), s.eventsRoute(m, base), s.watchOneRoute(m, base)}
	if m.Parent != "" {
		routes = append(routes, s.listAllRoute(m))
	}
	for _, v := range m.Views {
		routes = append(routes, s.viewRoute(m, v, base))
	}
	for _, c := range m.Commands() {
		routes = append(routes, s.commandRoute(m, c, base))
	}
	return append(routes, s.storedRoute(m, base), s.commandRoute(m, repairCommand, base))
}

func (s *Server) commonRoutes() []*rest.Route {
	routes := []*rest.Route{s.watchRoute()}
	if s.instances != nil {
		routes = append(routes, s.instances.Routes()...)
	}
	routes = append(routes, s.graphRoutes()...)
	routes = append(routes, s.ops.Routes()...)
	routes = append(routes, s.admin.Routes()...)
	return append(routes, s.documents.Routes()...)
}

// Handler serves everything: the operations, the documents and the answers to what is not there.
func (s *Server) Handler() http.Handler { return s.rest.Handler() }

// HTTPServer is a server for the handler with limits that a door needs: nobody holds a connection by sending slowly, or by
// taking an answer slowly, and no header is large. Its listener is to be one of [Server.Listen].
func (s *Server) HTTPServer(addr string, tlsConfig *tls.Config) *http.Server {
	return s.rest.HTTPServer(addr, tlsConfig)
}

// Listen bounds the connections of a listener. It goes below TLS: a handshake is one of them.
func (s *Server) Listen(l net.Listener) net.Listener { return s.rest.Listen(l) }

// OpenAPI is the document that /openapi.json serves.
func (s *Server) OpenAPI() []byte { return s.documents.OpenAPI() }

// AsyncAPI is the document that /asyncapi.json serves.
func (s *Server) AsyncAPI() []byte { return s.documents.AsyncAPI() }

// Operations are all operations, hidden ones included, in the order of their paths.
func (s *Server) Operations() []rest.Operation { return s.rest.Operations() }

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
	var names []string
	for _, m := range s.store.Machines {
		names = append(names, m.Name)
	}
	return s.rpc.Start(s.store.Names, s.version.Version, names, endpoints...)
}

// Close ends the micro service, so that other nodes take what comes, and the watches with a last event. Other requests are not touched: they are
// answered, and their commands wait for no turns any more.
func (s *Server) Close() error {
	err := s.rpc.Stop()
	s.rest.EndWatches()
	s.sender.Release()
	s.rpc.Wait()
	s.rest.Wait()
	return err
}
