// Package documents makes what describes the API from what is registered: OpenAPI, AsyncAPI, the tables of the machines, and the page
// that shows them.
package documents

// The set of documents of one router. api/server.go makes it when routes are built: New, Routes, then Publish, which writes all
// documents into memory. From then on it only serves these files, with ETags; a machine that is added gets a new router with a new set.

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/streams"
)

//go:embed docs
var assets embed.FS

// docsPolicy lets the page use its own files and nothing else.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Set are the documents that describe the API, made from what is registered with one router.
type Set struct {
	files map[string]file // that do not change

	router   *rest.Router
	machines *registry.Registry
	names    streams.Names
}

// New makes a set that is empty until [Set.Publish].
func New(r *rest.Router, ms *registry.Registry, names streams.Names) *Set {
	return &Set{files: map[string]file{}, router: r, machines: ms, names: names}
}

// Routes serve the documents.
func (s *Set) Routes() []*rest.Route {
	tags := []string{"server"}
	anything := func(contentType, doc string) map[string]*huma.Response {
		return map[string]*huma.Response{
			"200": {Description: doc, Content: map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{}}}},
			"304": {Description: "The document still has the ETag"},
		}
	}
	doc := func(id, path, contentType, summary string) *rest.Route {
		return &rest.Route{Open: true, Serve: func(q *rest.Request) error { return s.file(q, path) }, Op: huma.Operation{
			OperationID: id, Method: http.MethodGet, Path: path, Tags: tags, Summary: summary, Responses: anything(contentType, "The document"),
		}}
	}
	routes := []*rest.Route{
		doc("openapi-json", "/openapi.json", "application/json", "Read this document"),
		doc("openapi-yaml", "/openapi.yaml", "application/yaml", "Read this document as YAML"),
		doc("asyncapi-json", "/asyncapi.json", "application/json", "Read what is sent over NATS, as AsyncAPI"),
	}
	for _, path := range []string{"/docs", "/docs/docs.js", "/docs/docs.css", "/docs/machines.json"} {
		routes = append(routes, &rest.Route{Open: true, Serve: func(q *rest.Request) error { return s.file(q, path) }, Op: huma.Operation{Method: http.MethodGet, Path: path, Hidden: true}})
	}
	home := &rest.Route{Open: true, Op: huma.Operation{Method: http.MethodGet, Path: "/{$}", Hidden: true}, Serve: func(q *rest.Request) error {
		http.Redirect(q.W, q.R, "/docs", http.StatusTemporaryRedirect)
		return nil
	}}
	return append(routes, home)
}

// Publish makes the documents of what is registered. more adds to the AsyncAPI document what goes over NATS besides commands, events and reads.
func (s *Set) Publish(more ...func(*Async)) error {
	spec, yaml, err := s.openAPI()
	if err != nil {
		return err
	}
	s.keep("/openapi.json", "application/json", spec, "")
	s.keep("/openapi.yaml", "application/yaml", yaml, "")
	async, err := s.published(s.asyncAPI(more))
	if err != nil {
		return fmt.Errorf("api: cannot write the AsyncAPI document: %w", err)
	}
	s.keep("/asyncapi.json", "application/json", async, "")
	return s.publishDocs()
}

func (s *Set) publishDocs() error {
	list, err := indented(entities.MachineList{Items: entities.Graphs(s.machines.All())})
	if err != nil {
		return fmt.Errorf("api: cannot write the machines: %w", err)
	}
	s.keep("/docs/machines.json", "application/json", list, "")
	page, err := assets.ReadFile("docs/docs.html")
	if err != nil {
		return fmt.Errorf("api: cannot read the page: %w", err)
	}
	html := s.page(string(page))
	s.keep("/docs", "text/html; charset=utf-8", []byte(html), docsPolicy)
	for name, contentType := range map[string]string{"docs.js": "text/javascript; charset=utf-8", "docs.css": "text/css; charset=utf-8"} {
		b, err := assets.ReadFile("docs/" + name)
		if err != nil {
			return fmt.Errorf("api: cannot read the page: %w", err)
		}
		s.keep("/docs/"+name, contentType, b, "")
	}
	return nil
}

func (s *Set) keep(path, contentType string, body []byte, policy string) {
	sum := sha256.Sum256(body)
	s.files[path] = file{contentType, body, `"` + hex.EncodeToString(sum[:8]) + `"`, policy}
}

// OpenAPI is the document that /openapi.json serves.
func (s *Set) OpenAPI() []byte { return slices.Clone(s.files["/openapi.json"].body) }

// AsyncAPI is the document that /asyncapi.json serves.
func (s *Set) AsyncAPI() []byte { return slices.Clone(s.files["/asyncapi.json"].body) }

// file is a document that does not change.
type file struct {
	contentType string
	body        []byte
	etag        string
	policy      string // Content-Security-Policy, if not the one of the API
}

func (s *Set) file(q *rest.Request, path string) error {
	f := s.files[path]
	h := q.W.Header()
	h.Set("ETag", f.etag)
	if f.policy != "" {
		h.Set("Content-Security-Policy", f.policy)
	}
	if list, all, ok := rest.EntityTags(q.R.Header["If-None-Match"]); ok {
		for _, t := range list {
			all = all || `"`+t.Value+`"` == f.etag
		}
		if all {
			q.W.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	return q.Text(f.contentType, f.body)
}

// indented is a document for people and for diffs.
func indented(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return append(b, '\n'), err
}
