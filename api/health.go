package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Health is what /livez and /readyz say.
type Health struct {
	Status  string        `json:"status" enum:"ok,failing"`
	Checks  []Check       `json:"checks,omitempty" doc:"With ?verbose, or when something fails"`
	Version *Version      `json:"version,omitempty"`
	Profile string        `json:"profile,omitempty" doc:"What an acknowledged write survives"`
	Indexes []IndexHealth `json:"indexes,omitempty"`
}

// IndexHealth is how far an index is behind its bucket.
type IndexHealth struct {
	Machine  string  `json:"machine"`
	Items    int     `json:"items"`
	Revision uint64  `json:"revision"`
	Behind   uint64  `json:"behind" doc:"Revisions that it is known to lack"`
	Quiet    float64 `json:"quiet" doc:"Seconds since the server last said anything; it does so every second"`
}

func (s *Server) healthRoutes() []*route {
	tags := []string{"server"}
	verbose := func() []*huma.Param {
		return []*huma.Param{query("verbose", "Show every check", boolean())}
	}
	health := s.bodyOf(reflect.TypeFor[Health]())
	anything := func(contentType, doc string) map[string]*huma.Response {
		return map[string]*huma.Response{
			"200": {Description: doc, Content: map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{}}}},
			"304": {Description: "The document is still at the ETag"},
		}
	}
	metrics := &route{role: Read, open: s.o.Open, serve: (*request).scrape, op: huma.Operation{
		OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: tags, Summary: "Read the metrics in the format of Prometheus", Responses: map[string]*huma.Response{
			"200": {Description: "The metrics", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}},
		},
	}}
	doc := func(id, path, contentType, summary string) *route {
		return &route{open: true, serve: func(q *request) error { return q.file(path) }, op: huma.Operation{
			OperationID: id, Method: http.MethodGet, Path: path, Tags: tags, Summary: summary, Responses: anything(contentType, "The document"),
		}}
	}
	routes := []*route{
		{open: true, serve: (*request).live, op: huma.Operation{
			OperationID: "livez", Method: http.MethodGet, Path: "/livez", Tags: tags, Summary: "Tell whether the process works", Parameters: verbose(),
			Responses: map[string]*huma.Response{"200": {Description: "It does", Content: health}},
		}},
		{open: true, serve: (*request).ready, op: huma.Operation{
			OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Tags: tags, Summary: "Tell whether the process can serve", Parameters: verbose(),
			Responses: map[string]*huma.Response{"200": {Description: "It can", Content: health}, "503": {Description: "It cannot, or it is stopping", Content: health}},
		}},
		metrics,
		doc("openapi-json", "/openapi.json", "application/json", "Read this document"),
		doc("openapi-yaml", "/openapi.yaml", "application/yaml", "Read this document as YAML"),
		doc("asyncapi-json", "/asyncapi.json", "application/json", "Read what is sent over NATS, as AsyncAPI"),
	}
	for _, path := range []string{"/docs", "/docs/docs.js", "/docs/docs.css", "/docs/machines.json"} {
		routes = append(routes, &route{open: true, serve: func(q *request) error { return q.file(path) }, op: huma.Operation{Method: http.MethodGet, Path: path, Hidden: true}})
	}
	home := &route{open: true, op: huma.Operation{Method: http.MethodGet, Path: "/{$}", Hidden: true}, serve: func(q *request) error {
		http.Redirect(q.w, q.r, "/docs", http.StatusTemporaryRedirect)
		return nil
	}}
	return append(routes, home)
}

func (q *request) live() error { return q.json(http.StatusOK, Health{Status: "ok"}) }

// ready runs the checks. Details, which are of all namespaces, are shown to those who may read them.
func (q *request) ready() error {
	h := Health{Status: "ok"}
	ready := q.closing.Err() == nil && (q.o.Ready == nil || q.o.Ready())
	h.Checks = append(h.Checks, Check{Name: "serving", OK: ready})
	for _, m := range q.o.Machines {
		select {
		case <-q.o.Indexes[m.Name].Ready():
			c := Check{Name: "index of " + m.Plural, OK: true}
			if stale := q.o.Indexes[m.Name].Stale(); stale > 0 { // it answers with what it knows, but another node may know more
				c.OK, c.Detail = false, fmt.Sprintf("has heard nothing of its bucket for %s: lists, counts and watches may be as old as that", stale.Round(time.Second))
			}
			h.Checks = append(h.Checks, c)
		default:
			h.Checks = append(h.Checks, Check{Name: "index of " + m.Plural, Detail: "is not complete yet"})
		}
	}
	if q.o.Checks != nil {
		h.Checks = append(h.Checks, q.o.Checks(q.ctx())...)
	}
	status := http.StatusOK
	for _, c := range h.Checks {
		if !c.OK {
			h.Status, status = "failing", http.StatusServiceUnavailable
			q.w.Header().Set("Retry-After", "1")
		}
	}
	who, p := q.keys.who(q.r)
	switch {
	case p != nil || who.may(Read) != nil || who.ofAll("") != nil: // names and verdicts only
		for i := range h.Checks {
			h.Checks[i].Detail = ""
		}
	case q.flag("verbose"):
		h.Version, h.Profile, h.Indexes = &q.o.Version, q.o.Profile, q.indexes()
	}
	if !q.flag("verbose") && h.Status == "ok" {
		h.Checks = nil
	}
	q.w.Header().Set("Cache-Control", "no-store")
	return q.json(status, h)
}

func (q *request) indexes() []IndexHealth {
	var all []IndexHealth
	for _, m := range q.o.Machines {
		lag := q.o.Indexes[m.Name].Lag()
		all = append(all, IndexHealth{
			Machine: m.Name, Items: q.o.Indexes[m.Name].Len(), Revision: lag.Applied, Behind: lag.Known - min(lag.Applied, lag.Known),
			Quiet: lag.Quiet.Round(time.Millisecond).Seconds(),
		})
	}
	return all
}

func (q *request) scrape() error {
	if p := q.who.ofAll("the metrics"); p != nil && !q.rt.open {
		return p
	}
	q.metrics.page.ServeHTTP(q.w, q.r)
	return nil
}

// file is a document that does not change while the process runs.
type file struct {
	contentType string
	body        []byte
	etag        string
	policy      string // Content-Security-Policy, if not the one of the API
}

func (q *request) file(path string) error {
	f := q.files[path]
	h := q.w.Header()
	h.Set("ETag", f.etag)
	if f.policy != "" {
		h.Set("Content-Security-Policy", f.policy)
	}
	if list, all, ok := tags(q.r.Header["If-None-Match"]); ok {
		for _, t := range list {
			all = all || `"`+t.value+`"` == f.etag
		}
		if all {
			q.w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	return q.text(f.contentType, f.body)
}

// indented is a document for people and for diffs.
func indented(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return append(b, '\n'), err
}
