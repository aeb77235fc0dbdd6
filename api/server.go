package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Server is the door. It is ready to serve when it was made.
type Server struct {
	o       Options
	keys    *keyring
	origin  *http.CrossOriginProtection // where no token is needed, a browser would let any page send commands
	mux     *http.ServeMux
	api     huma.API
	tracer  trace.Tracer
	metrics *metrics
	buckets map[string]*kv.Bucket[json.RawMessage] // by name of machine
	views   map[string]*kv.Bucket[json.RawMessage] // by plain name of bucket

	operations *kv.Bucket[batch]
	answers    *kv.Bucket[keptAnswer] // to commands under a key of their sender
	commands   jetstream.Stream
	backing    sync.Mutex // held while a backup is made

	patterns map[string]bool
	routes   []*route
	files    map[string]file // documents that do not change
	shapes   sync.Map        // *shape by *huma.Schema, of those that were asked for

	closing context.Context // ends when watches must end
	close   context.CancelFunc
	limits  *limiters
	deltas  deltas // of watches of instances
	watches sync.WaitGroup

	mu    sync.Mutex
	micro micro.Service
	asked limits.Jobs // over NATS, what waits or is under way

	births births
}

// New checks the options and builds every operation. It fails when a bucket is missing, when an operation declares no
// role, and when two operations meet on one path.
func New(o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.KeysFor == 0 {
		o.KeysFor = streams.IdempotencyWindow
	}
	if o.AnswerWithin == 0 {
		o.AnswerWithin = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Tracer == nil {
		o.Tracer = noop.NewTracerProvider().Tracer("")
	}
	o.Timeouts = o.Timeouts.orDefault()
	keys, err := newKeyring(o.Tokens, o.Open)
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, keys: keys, origin: http.NewCrossOriginProtection(), mux: http.NewServeMux(), tracer: o.Tracer, patterns: map[string]bool{}, files: map[string]file{},
		buckets: map[string]*kv.Bucket[json.RawMessage]{}, views: map[string]*kv.Bucket[json.RawMessage]{},
		limits: newLimiters(o.Limits, o.paces()),
	}
	s.limits.entities = limits.NewQuota("entities", o.Limits.Entities, s.fullest)
	s.closing, s.close = context.WithCancel(context.Background())
	if s.metrics, err = newMetrics(s); err != nil {
		return nil, err
	}
	s.api = humago.New(s.mux, humaConfig(o.Version))
	if err := s.open(); err != nil {
		return nil, err
	}
	if err := s.routesOf(); err != nil {
		return nil, err
	}
	if err := s.publish(); err != nil {
		return nil, err
	}
	s.metrics.begin(s.routes)
	s.mux.HandleFunc("/", s.unmatched)
	return s, nil
}

func humaConfig(v Version) huma.Config {
	version := v.Version
	if version == "" {
		version = "dev"
	}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Instar", Version: version, Description: about, License: &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"}},
			Servers: []*huma.Server{{URL: "/", Description: "The server that this document is read from"}},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer", Description: "A token that the operator gave out; its role is read, operate or admin. Not needed where the server is open."}},
			},
		},
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
	}
}

const about = `Durable state machines for things on NATS JetStream.

Every machine has the same operations: one POST per command, reads, a timeline, a watch. State changes only by commands.
A command answers 200 when the engine has decided, 202 when it is stored but not decided yet, and a problem when it is
refused. Send an Idempotency-Key to be able to repeat a command safely, and If-Match to act only on what you have seen.`

// open opens the buckets of all machines and their views.
func (s *Server) open() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, m := range s.o.Machines {
		b, err := kv.Open(ctx, s.o.JS, s.o.Names.Bucket(m.Plural), kv.JSON[json.RawMessage]())
		if err != nil {
			return fmt.Errorf("api: %w", err)
		}
		s.buckets[m.Name] = b
		for _, v := range m.Views {
			b, err := kv.Open(ctx, s.o.JS, s.o.Names.Bucket(m.BucketOf(v)), kv.JSON[json.RawMessage]())
			if err != nil {
				return fmt.Errorf("api: %w", err)
			}
			s.views[m.BucketOf(v)] = b
		}
	}
	var err error
	if s.operations, err = kv.Open(ctx, s.o.JS, s.o.Names.Bucket(streams.OperationsBucket), kv.JSON[batch]()); err != nil {
		return fmt.Errorf("api: %w", err)
	}
	if s.answers, err = kv.Open(ctx, s.o.JS, s.o.Names.Bucket(streams.IdempotencyBucket), kv.JSON[keptAnswer]()); err != nil {
		return fmt.Errorf("api: %w", err)
	}
	if s.commands, err = s.o.JS.Stream(ctx, s.o.Names.Stream(streams.CommandStream)); err != nil {
		return fmt.Errorf("api: cannot open the stream of commands: %w", err)
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
	var all []*route
	for _, m := range s.o.Machines {
		all = append(all, s.machineRoutes(m)...)
	}
	all = append(all, s.commonRoutes()...)
	for _, rt := range all {
		if err := s.register(rt); err != nil {
			return err
		}
	}
	return nil
}

// machineRoutes are the operations of one machine.
func (s *Server) machineRoutes(m *machines.Machine) []*route {
	base := "/v1"
	if m.Parent != "" {
		base += "/" + s.plural(m.Parent) + "/{" + m.Parent + "}"
	}
	base += "/" + m.Plural
	s.api.OpenAPI().Tags = append(s.api.OpenAPI().Tags, &huma.Tag{Name: m.Name, Description: m.Doc})
	routes := []*route{s.listRoute(m, base), s.entityRoute(m, base), s.eventsRoute(m, base), s.watchOneRoute(m, base)}
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

func (s *Server) commonRoutes() []*route {
	routes := []*route{s.watchRoute()}
	routes = append(routes, s.discoverRoutes()...)
	routes = append(routes, s.graphRoutes()...)
	routes = append(routes, s.letterRoutes()...)
	routes = append(routes, s.operationRoutes()...)
	routes = append(routes, s.nodeRoutes()...)
	routes = append(routes, s.backupRoutes()...)
	routes = append(routes, s.outboxRoutes()...)
	return append(routes, s.healthRoutes()...)
}

// plural is the plural of a machine, or of a parent that is no machine.
func (s *Server) plural(name string) string {
	for _, m := range s.o.Machines {
		if m.Name == name {
			return m.Plural
		}
	}
	return name + "s"
}

// pathOf is where an entity is read.
func (s *Server) pathOf(m *machines.Machine, namespace, parent, id string) string {
	path := "/v1/" + m.Plural + "/" + id
	if m.Parent != "" {
		path = "/v1/" + s.plural(m.Parent) + "/" + parent + "/" + m.Plural + "/" + id
	}
	if namespace != defaultNamespace {
		path += "?namespace=" + namespace
	}
	return path
}

// schemaName names the type of a lifecycle after its package as well: each one has its own Data.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path := t.PkgPath()
	if _, sub, ok := strings.Cut(path, "/machines/"); ok {
		for _, part := range strings.FieldsFunc(sub, func(r rune) bool { return r == '/' || r == '_' || r == '-' }) {
			name = strings.ToUpper(part[:1]) + part[1:] + name
		}
	}
	return name
}

// HTTPServer is a server for the handler with limits that a door needs: nobody holds a connection by sending slowly, or by
// taking an answer slowly, and no header is large. Its listener is to be one of [Server.Listen].
func (s *Server) HTTPServer(addr string, tlsConfig *tls.Config) *http.Server {
	return &http.Server{
		Addr: addr, Handler: s.Handler(), TLSConfig: tlsConfig, ConnContext: connected, MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: s.o.Timeouts.Header, IdleTimeout: s.o.Timeouts.Idle,
		WriteTimeout: s.o.Timeouts.Write, // of what is written first; each write has the whole time again
		ErrorLog:     slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
}

// Registry is where the process registers what else it measures; /metrics shows it.
func (s *Server) Registry() *prometheus.Registry { return s.o.Registry }

// Close ends the micro service, so that other nodes take what comes, and the watches with a last event. Other requests are not touched: they are
// answered, and their commands wait for no turns any more.
func (s *Server) Close() error {
	s.mu.Lock()
	var err error
	if s.micro != nil {
		err = s.micro.Stop()
		s.micro = nil
	}
	s.close() // under the lock, so that no watch begins behind the wait
	s.mu.Unlock()
	s.limits.commands.Release()
	s.asked.Wait()
	s.watches.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("api: cannot stop the micro service: %w", err)
	}
	return nil
}
