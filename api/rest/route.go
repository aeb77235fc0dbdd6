package rest

// Route, an operation as packages declare it, and what happens at each call: handle makes a Request; run finds out who asks, checks role, origin, rate, path and
// query (parse), and calls Serve. Register (router.go) calls document, which adds to the OpenAPI operation what all have in common: problems, security, role.

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/schema"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Route is one operation: what the document says of it, who may call it, and what it does.
type Route struct {
	Op    huma.Operation
	Role  auth.Role
	Open  bool // needs no role
	Page  bool // of the console: whatever the query says is for the page
	Serve func(*Request) error

	Machine, Command string // the command that it sends, if it does

	router *Router
	query  map[string]*huma.Param
	labels []string // path parameters that are names
}

// document adds what all operations have: the problems that they can answer, and who may call them.
func (r *Router) document(rt *Route) {
	if rt.Op.Responses == nil {
		rt.Op.Responses = map[string]*huma.Response{}
	}
	errors := append(slices.Clone(rt.Op.Errors), 400, 422, 403, 503) // of a query that is not as it should be; of a foreign Host; of one connection too many
	if rt.Op.Method != http.MethodGet {
		errors = append(errors, 413, 415) // also of a body where there should be none
	}
	if !rt.Open {
		errors = append(errors, 401, 429)
		rt.Op.Security = []map[string][]string{{"bearer": {}}}
		rt.Op.Extensions = maps.Clone(rt.Op.Extensions)
		if rt.Op.Extensions == nil {
			rt.Op.Extensions = map[string]any{}
		}
		rt.Op.Extensions["x-role"] = string(rt.Role)
	}
	for _, status := range append(errors, 500) {
		code := strconv.Itoa(status)
		if rt.Op.Responses[code] == nil {
			rt.Op.Responses[code] = &huma.Response{
				Description: problemTitles(status),
				Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: r.Registry().Schema(reflect.TypeFor[problem.Problem](), true, "")}},
			}
		}
	}
	rt.Op.Errors = nil
}

func problemTitles(status int) string {
	var titles []string
	for _, k := range problem.Kinds {
		if k.Status == status {
			titles = append(titles, k.Title+" ("+k.Code+")")
		}
	}
	if len(titles) == 0 {
		return http.StatusText(status)
	}
	return strings.Join(titles, "; ")
}

func pathParams(path string) []string {
	var names []string
	for _, part := range strings.Split(path, "/") {
		if strings.HasPrefix(part, "{") && part != "{$}" {
			names = append(names, strings.Trim(part, "{}"))
		}
	}
	return names
}

func labelSchema() *huma.Schema {
	one, most := 1, 63
	return &huma.Schema{Type: huma.TypeString, MinLength: &one, MaxLength: &most, Pattern: `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`}
}

// handle runs one operation: authentication, parameters, then the operation itself.
func (s *Server) handle(rt *Route, ctx huma.Context) {
	r, w := humago.Unwrap(ctx)
	q := &Request{server: s, Rt: rt, W: w, R: r, Id: requestID(w)}
	if sw, ok := w.(*statusWriter); ok {
		sw.route = rt.Op.Path
	}
	if err := q.run(); err != nil {
		q.fail(err)
	}
}

// FromHere refuses (403) what the page of another site has a browser send to change something; a browser sends its cookies and its place in the network with it.
func (s *Server) FromHere(r *http.Request) *problem.Problem {
	if s.origin.Check(r) == nil {
		return nil
	}
	return problem.New(problem.CodeForbidden, "a page of another site may not send commands without a token")
}

// fromBrowser reports whether a browser has sent a request that may change something: it names itself by Sec-Fetch-Site, to a server without TLS that is not
// on this machine only by Origin.
func fromBrowser(r *http.Request) bool {
	return r.Header["Sec-Fetch-Site"] != nil || r.Header["Origin"] != nil
}

func (q *Request) run() error {
	if !q.Rt.Open {
		who, p := q.server.Keys.Identify(q.R)
		if p != nil {
			return p
		}
		if p := who.May(q.Rt.Role); p != nil {
			return p
		}
		if p := q.server.FromHere(q.R); p != nil && (who == auth.Anonymous || who.Session()) {
			return p
		}
		if q.server.o.ReadOnly && q.Rt.Op.Method != http.MethodGet && (who.Session() || fromBrowser(q.R)) {
			return problem.New(problem.CodeForbidden, "the console of this server is read-only (ui.readonly): use the command line, or the API with a token")
		}
		q.Who = who
		if who.Session() { // also what it watches ends with it; not by a deadline, for which reads of storage would leave out their own
			ctx, cancel := context.WithCancel(q.R.Context())
			defer cancel()
			defer time.AfterFunc(time.Until(who.Until), cancel).Stop()
			q.R = q.R.WithContext(ctx)
		}
		if p := q.server.CheckRate(q.Client()); p != nil {
			return p
		}
	}
	if p := q.parse(); p != nil {
		return p
	}
	return q.Rt.Serve(q)
}

// parse reads the query and checks it and the names in the path.
func (q *Request) parse() *problem.Problem {
	var wrong []schema.Detail
	for _, name := range q.Rt.labels {
		if streams.CheckLabel(q.R.PathValue(name)) != nil {
			wrong = append(wrong, schema.Detail{Location: "path." + name, Message: problem.LabelRule})
		}
	}
	if raw := q.R.URL.RawQuery; raw != "" && !q.Rt.Page {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return problem.New(problem.CodeMalformed, "the query of the address cannot be read")
		}
		q.Query = values
		for _, name := range slices.Sorted(maps.Keys(values)) {
			wrong = append(wrong, q.checkParam(name, values[name])...)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	p := problem.New(machines.CodeValidation, "the request is not valid")
	p.Errors = wrong
	p.Detail = p.Errors[0].Location + ": " + p.Errors[0].Message
	return p
}

func (q *Request) checkParam(name string, values []string) []schema.Detail {
	location := "query." + schema.Clip(name)
	param := q.Rt.query[name]
	if param == nil {
		return []schema.Detail{{Location: location, Message: "unknown query parameter"}}
	}
	of := param.Schema
	if of.Type == huma.TypeArray {
		of = of.Items
	} else if len(values) > 1 {
		return []schema.Detail{{Location: location, Message: "is there more than once"}}
	}
	var details []schema.Detail
	for _, v := range values {
		value, ok := any(v), true
		switch of.Type {
		case huma.TypeInteger:
			n, err := strconv.ParseUint(v, 10, 64)
			value, ok = float64(n), err == nil
		case huma.TypeBoolean:
			b, err := strconv.ParseBool(v)
			value, ok = b, err == nil || v == "" // ?verbose
			if v == "" {
				value = true
			}
		}
		if !ok {
			details = append(details, schema.Detail{Location: location, Message: "expected " + of.Type})
			continue
		}
		details = append(details, q.Router().Schemas.Validate(of, location, value)...)
	}
	return details
}
