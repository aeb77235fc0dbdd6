package rest

// The way of an HTTP request to the router and back. serve does what all requests share: request id, headers, trace, refusing
// too many connections, foreign hosts and unclean paths. It passes the request to the mux of the current router, which calls
// handle (route.go) or unmatched. finish counts it and answers after a panic. statusWriter carries the answer (limits.go).

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
)

// Handler serves everything: the operations, the documents and the answers to what is not there.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// statusWriter remembers what was answered. It unwraps for http.ResponseController.
type statusWriter struct {
	http.ResponseWriter
	status int
	route  string
	id     string

	body     io.Reader // of the request, if it has one
	conn     deadlines // nil has none
	within   time.Duration
	extended time.Time // when the client last got that time
	late     bool      // the client did not take the answer in time
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func requestID(w http.ResponseWriter) string {
	if sw, ok := w.(*statusWriter); ok {
		return sw.id
	}
	return ""
}

const headerRequestID = "X-Request-Id"

// always are the headers of every answer. They are shared by all of them.
var always = [...]struct {
	name  string
	value []string
}{
	{"X-Content-Type-Options", []string{"nosniff"}},
	{"X-Frame-Options", []string{"DENY"}},
	{"Referrer-Policy", []string{"no-referrer"}},
	{"Content-Security-Policy", []string{"default-src 'none'; frame-ancestors 'none'"}},
	{"Cross-Origin-Resource-Policy", []string{"same-origin"}},
	{"Cache-Control", []string{"no-cache"}},
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	sw := &statusWriter{ResponseWriter: w, id: r.Header.Get(headerRequestID), route: routeOther, within: s.o.Timeouts.Write}
	sw.conn, _ = w.(deadlines)
	if r.ContentLength != 0 { // also if no handler reads the body: begin reads it before the answer
		_ = http.NewResponseController(w).SetReadDeadline(start.Add(s.o.Timeouts.Body)) // not every writer can
		if r.ContentLength < maxBody && r.Header["Expect"] == nil {                     // a client that expects 100 is told not to send it
			sw.body = r.Body
		}
	}
	if !saneID(sw.id) {
		sw.id = nuid.Next()
	}
	h := w.Header()
	h["X-Request-Id"] = []string{sw.id}
	for i := range always {
		h[always[i].name] = always[i].value[:1:1] // whoever adds to it gets a copy
	}
	if r.TLS != nil {
		h["Strict-Transport-Security"] = []string{"max-age=31536000"}
	}
	r, span := s.traced(r)
	defer s.finish(sw, r, span, start)
	if err, over := r.Context().Value(overBound{}).(error); over {
		h.Set("Connection", "close")
		if path := r.URL.Path; path != "/livez" && path != "/readyz" { // supervisors and load balancers ask there
			TooMany(err, time.Second).Write(sw, r, sw.id)
			return
		}
	}
	if !s.named(r.Host) {
		problem.New(problem.CodeForbidden, foreign).Write(sw, r, sw.id)
		return
	}
	if !cleanPath(r.URL.Path) {
		problem.New(machines.CodeNotFound, "a part of the path is empty or only dots").Write(sw, r, sw.id)
		return
	}
	s.router.Load().mux.ServeHTTP(sw, r)
}

// traced begins the span of a request. Where nobody traces, a request without a trace of its own is as it was.
func (s *Server) traced(r *http.Request) (*http.Request, trace.Span) {
	if s.untraced && r.Header["Traceparent"] == nil {
		return r, trace.SpanFromContext(r.Context())
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := s.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), span
}

// finish answers for a handler that panicked, and counts the request.
func (s *Server) finish(sw *statusWriter, r *http.Request, span trace.Span, start time.Time) {
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler {
			span.End()
			panic(p)
		}
		panics.Caught(s.o.Log, "http", p, "request", sw.id, "route", sw.route)
		if sw.status != 0 {
			span.End()
			panic(http.ErrAbortHandler) // the answer has begun: only a broken connection shows that it is not complete
		}
		problem.New(problem.CodeInternal, "an unexpected error; it is logged under the requestId").Write(sw, r, sw.id)
	}
	sw.begin(http.StatusOK)
	sw.extend() // what is left of the answer goes out when this returns
	if sw.late {
		s.metrics.timeouts.WithLabelValues("write").Inc()
	}
	s.metrics.request(sw.route, r.Method, sw.status, time.Since(start))
	if span.IsRecording() {
		span.SetName(r.Method + " " + sw.route)
		span.SetAttributes(attribute.String("http.route", sw.route), attribute.String("http.request.method", r.Method), attribute.Int("http.response.status_code", sw.status))
		if sw.status >= 500 {
			span.SetStatus(codes.Error, http.StatusText(sw.status))
		}
	}
	span.End()
}

const foreign = "this server asks for no token, so it takes requests for loopback names, addresses and the names in http.hosts only: a page of another site, " +
	"whose name leads here, could ask it in a browser otherwise. Is the name in the header Host one of this server? Add it to http.hosts (--http-hosts), or let the server ask for tokens"

// named reports whether requests for a host are accepted. Whoever controls a name in DNS can point it here, and a browser
// would then take pages of that name for this server's own (DNS rebinding). Nobody controls an address in this way.
func (s *Server) named(host string) bool {
	if !s.o.Open || s.o.Hosts == nil || host == "" { // no browser sends none
		return true
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.ContainsFunc(s.o.Hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// cleanPath refuses what the router would answer with a redirect to another resource: "/things/." is not "/things".
func cleanPath(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	parts := strings.Split(path[1:], "/")
	for i, part := range parts {
		if part == "" && (i < len(parts)-1 || i > 0) && path != "/ui/" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

func saneID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	})
}

// unmatched answers what no operation took: the path does not exist, or not for this method.
func (rt *Router) unmatched(w http.ResponseWriter, r *http.Request) {
	var allow []string
	detail := "the path is not offered for this method"
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, pattern := rt.mux.Handler(probe); pattern != "/" {
			allow = append(allow, method)
			if method == http.MethodGet {
				allow = append(allow, http.MethodHead)
				detail += rt.begins(pattern)
			}
		}
	}
	id := requestID(w)
	if len(allow) == 0 || slices.Contains(allow, r.Method) {
		problem.New(machines.CodeNotFound, rt.server.noPath(r.URL.Path)).Write(w, r, id)
		return
	}
	problem.New(problem.CodeMethod, detail).With("Allow", strings.Join(allow, ", ")).Write(w, r, id)
}

// begins says how the life begins of what the pattern of a list has: of what is below a parent the path is another one than that of the list of all.
func (rt *Router) begins(list string) string {
	said := ""
	for _, route := range rt.Routes {
		if birth, _ := route.Op.Extensions["x-birth"].(bool); birth && strings.HasSuffix(route.Op.Path, list[strings.LastIndex(list, "/"):]+"/{id}/"+route.Command) {
			said += "; " + route.Command + " is " + route.Op.Method + " " + route.Op.Path
		}
	}
	return said
}

// noPath is what is said of a path that is not there.
func (s *Server) noPath(path string) string {
	parts := strings.Split(path, "/")
	for words, section := range s.o.Absent {
		if !slices.ContainsFunc(strings.Fields(words), func(word string) bool { return !slices.Contains(parts, word) }) {
			return "there is no such path: it is there only with the section " + section + " of the configuration, which this server lacks"
		}
	}
	return "there is no such path; GET /v1/machines names the machines that this server has"
}

// Traceparent is the W3C trace context of a request, as commands carry it.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	var c carrier
	propagation.TraceContext{}.Inject(ctx, &c)
	return c.parent
}

// carrier keeps the one header that is passed on; its name is not canonicalized, as nats.Header would not be read.
type carrier struct{ parent string }

func (c *carrier) Get(key string) string {
	if key == "traceparent" {
		return c.parent
	}
	return ""
}

func (c *carrier) Set(key, value string) {
	if key == "traceparent" {
		c.parent = value
	}
}

func (c *carrier) Keys() []string { return []string{"traceparent"} }
