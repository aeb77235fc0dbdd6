package rest

// Router, the routes of one set of machines with their OpenAPI document. api/server.go makes one (NewRouter), adds each route (Register)
// and serves it (Use); handler.go passes requests to its mux. A machine that is added gets a new router: one that is served never changes.

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/schema"
)

// Router has the routes of the machines that there are, and their document. It is built as a whole, and replaced as a whole by one that
// has a machine more ([Server.Use]), since neither the document nor its schemas can be changed while requests read them. A request ends on the
// router on which it began.
type Router struct {
	server   *Server
	mux      *http.ServeMux
	API      huma.API
	Schemas  *schema.Validator
	Routes   []*Route
	taken    map[string]*Route // by what only one may have: an id, or a method and a path whose parameters have any name
	replaced context.Context   // ends when another one is served
	replace  context.CancelFunc
}

// NewRouter makes a router that has no routes, and is not served before [Server.Use].
func (s *Server) NewRouter() *Router {
	r := &Router{server: s, mux: http.NewServeMux(), taken: map[string]*Route{}}
	r.replaced, r.replace = context.WithCancel(context.Background())
	r.API = humago.New(r.mux, humaConfig(s.o.Version))
	r.Schemas = schema.New(r.Registry())
	r.mux.HandleFunc("/", r.unmatched)
	return r
}

// Use serves another router from now on. The counters of its new routes begin at 0.
func (s *Server) Use(r *Router) {
	s.metrics.begin(r.Routes)
	if before := s.router.Swap(r); before != nil {
		before.replace()
	}
}

// Router is what is served now.
func (s *Server) Router() *Router { return s.router.Load() }

// BodyOf documents an answer of one type of content.
func (r *Router) BodyOf(typ reflect.Type) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: r.Registry().Schema(typ, true, "")}}
}

// Registry has the schemas of the document.
func (r *Router) Registry() huma.Registry { return r.API.OpenAPI().Components.Schemas }

// Command is the route of a command of a machine; nil when there is none.
func (r *Router) Command(machine, command string) *Route {
	for _, rt := range r.Routes {
		if rt.Machine == machine && rt.Command == command {
			return rt
		}
	}
	return nil
}

// Body is the schema of the body that an operation takes; nil takes none.
func (rt *Route) Body() *huma.Schema {
	if rt.Op.RequestBody == nil {
		return nil
	}
	return rt.Op.RequestBody.Content["application/json"].Schema
}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// Register adds an operation to the document and to the router. It fails for an operation that declares no role, and
// for a second one of the same id, or method and path.
func (r *Router) Register(rt *Route) error {
	if rt.Role.Rank() == 0 && !rt.Open {
		return fmt.Errorf("its operation %s declares no role", rt.at())
	}
	for _, name := range []string{rt.Op.OperationID, rt.Op.Method + " " + parameter.ReplaceAllString(rt.Op.Path, "{}")} {
		if other := r.taken[name]; other != nil && name != "" { // hidden ones have no id
			return fmt.Errorf("its operation %s is there twice: %s and %s", name, rt.at(), other.at())
		}
		r.taken[name] = rt
	}
	rt.router, rt.query = r, map[string]*huma.Param{}
	for _, name := range slices.Backward(pathParams(rt.Op.Path)) {
		p := &huma.Param{Name: name, In: "path", Required: true, Schema: labelSchema()}
		if i := slices.IndexFunc(rt.Op.Parameters, func(p *huma.Param) bool { return p.In == "path" && p.Name == name }); i < 0 {
			rt.Op.Parameters = slices.Insert(rt.Op.Parameters, 0, p)
			rt.labels = append(rt.labels, name)
		}
	}
	for _, p := range rt.Op.Parameters {
		p.Schema.PrecomputeMessages()
		if p.In == "query" {
			rt.query[p.Name] = p
		}
	}
	r.document(rt)
	if !rt.Op.Hidden {
		r.API.OpenAPI().AddOperation(&rt.Op)
	}
	r.Routes = append(r.Routes, rt)
	r.API.Adapter().Handle(&rt.Op, func(ctx huma.Context) { r.server.handle(rt, ctx) })
	return nil
}

// Operation is one operation of the document with the role that it needs.
type Operation struct {
	ID, Method, Path string
	Role             auth.Role // empty when no role is needed
}

func (rt *Route) at() string { return rt.Op.Method + " " + rt.Op.Path }

// Operations are all operations, hidden ones included, in the order of their paths.
func (r *Router) Operations() []Operation {
	var all []Operation
	for _, rt := range r.Routes {
		op := Operation{ID: rt.Op.OperationID, Method: rt.Op.Method, Path: rt.Op.Path}
		if !rt.Open {
			op.Role = rt.Role
		}
		all = append(all, op)
	}
	slices.SortFunc(all, func(a, b Operation) int { return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method) })
	return all
}

func humaConfig(version string) huma.Config {
	if version == "" {
		version = "dev"
	}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Instar", Version: version, Description: about, License: &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"}},
			Servers: []*huma.Server{{URL: "/", Description: "This server"}},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer", Description: "A token configured by the operator, with role read, operate or admin. Not needed by servers without tokens."}},
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

// schemaName includes the package in the name of a machine's type: each machine has its own Data.
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
