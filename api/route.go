package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// route is one operation: what the document says of it, who may call it, and what it does.
type route struct {
	op    huma.Operation
	role  Role
	open  bool // needs nobody's role
	serve func(*request) error

	query  map[string]*huma.Param
	labels []string // path parameters that are names
}

// bodyOf documents an answer of one type of content.
func (s *Server) bodyOf(typ reflect.Type) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: s.registry().Schema(typ, true, "")}}
}

func (s *Server) registry() huma.Registry { return s.api.OpenAPI().Components.Schemas }

// register adds an operation to the document and to the router. It fails for an operation that declares no role, and
// for a second one of the same method and path.
func (s *Server) register(rt *route) error {
	if rt.role.rank() == 0 && !rt.open {
		return fmt.Errorf("api: operation %s %s declares no role", rt.op.Method, rt.op.Path)
	}
	at := rt.op.Method + " " + rt.op.Path
	if s.patterns[at] {
		return fmt.Errorf("api: operation %s is there twice", at)
	}
	s.patterns[at] = true
	rt.query = map[string]*huma.Param{}
	for _, name := range slices.Backward(pathParams(rt.op.Path)) {
		p := &huma.Param{Name: name, In: "path", Required: true, Schema: labelSchema()}
		if i := slices.IndexFunc(rt.op.Parameters, func(p *huma.Param) bool { return p.In == "path" && p.Name == name }); i < 0 {
			rt.op.Parameters = slices.Insert(rt.op.Parameters, 0, p)
			rt.labels = append(rt.labels, name)
		}
	}
	for _, p := range rt.op.Parameters {
		p.Schema.PrecomputeMessages()
		if p.In == "query" {
			rt.query[p.Name] = p
		}
	}
	s.document(rt)
	if !rt.op.Hidden {
		s.api.OpenAPI().AddOperation(&rt.op)
	}
	s.routes = append(s.routes, rt)
	s.api.Adapter().Handle(&rt.op, func(ctx huma.Context) { s.handle(rt, ctx) })
	return nil
}

// document adds what all operations have: the problems that they can answer, and who may call them.
func (s *Server) document(rt *route) {
	if rt.op.Responses == nil {
		rt.op.Responses = map[string]*huma.Response{}
	}
	errors := append(slices.Clone(rt.op.Errors), 400, 422, 403, 503) // of a query that is not as it should be; of a foreign Host; of one connection too many
	if rt.op.Method != http.MethodGet {
		errors = append(errors, 413, 415) // also of a body where there should be none
	}
	if !rt.open {
		errors = append(errors, 401, 429)
		rt.op.Security = []map[string][]string{{"bearer": {}}}
		rt.op.Extensions = maps.Clone(rt.op.Extensions)
		if rt.op.Extensions == nil {
			rt.op.Extensions = map[string]any{}
		}
		rt.op.Extensions["x-role"] = string(rt.role)
	}
	for _, status := range append(errors, 500) {
		code := strconv.Itoa(status)
		if rt.op.Responses[code] == nil {
			rt.op.Responses[code] = &huma.Response{
				Description: problemTitles(status),
				Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: s.registry().Schema(reflect.TypeFor[Problem](), true, "")}},
			}
		}
	}
	rt.op.Errors = nil
}

func problemTitles(status int) string {
	var titles []string
	for _, k := range kinds {
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
func (s *Server) handle(rt *route, ctx huma.Context) {
	r, w := unwrap(ctx)
	q := &request{Server: s, rt: rt, w: w, r: r, id: requestID(w)}
	if sw, ok := w.(*statusWriter); ok {
		sw.route = rt.op.Path
	}
	if err := q.run(); err != nil {
		q.fail(err)
	}
}

func (q *request) run() error {
	if !q.rt.open {
		who, p := q.keys.who(q.r)
		if p != nil {
			return p
		}
		if p := who.may(q.rt.role); p != nil {
			return p
		}
		if err := q.origin.Check(q.r); err != nil && who == anonymous {
			return problem(codeForbidden, "a page of another site may not send commands without a token")
		}
		q.who = who
		if p := q.paced(q.client()); p != nil {
			return p
		}
	}
	if p := q.parse(); p != nil {
		return p
	}
	return q.rt.serve(q)
}

// parse reads the query and checks it and the names in the path.
func (q *request) parse() *Problem {
	p := problem(machines.CodeValidation, "the request is not valid")
	for _, name := range q.rt.labels {
		if streams.CheckLabel(q.r.PathValue(name)) != nil {
			p.Errors = append(p.Errors, Detail{"path." + name, labelRule})
		}
	}
	if raw := q.r.URL.RawQuery; raw != "" {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return problem(codeMalformed, "the query of the address cannot be read")
		}
		q.query = values
		for _, name := range slices.Sorted(maps.Keys(values)) {
			p.Errors = append(p.Errors, q.checkParam(name, values[name])...)
		}
	}
	if len(p.Errors) == 0 {
		return nil
	}
	p.Detail = p.Errors[0].Location + ": " + p.Errors[0].Message
	return p
}

func (q *request) checkParam(name string, values []string) []Detail {
	location := "query." + clip(name)
	param := q.rt.query[name]
	if param == nil {
		return []Detail{{location, "unknown query parameter"}}
	}
	schema := param.Schema
	if schema.Type == huma.TypeArray {
		schema = schema.Items
	} else if len(values) > 1 {
		return []Detail{{location, "is there more than once"}}
	}
	var details []Detail
	for _, v := range values {
		value, ok := any(v), true
		switch schema.Type {
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
			details = append(details, Detail{location, "expected " + schema.Type})
			continue
		}
		details = append(details, q.validate(schema, location, value)...)
	}
	return details
}

// clip makes a name that a caller chose fit to be repeated.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffd {
			return '?'
		}
		return r
	}, s)
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
