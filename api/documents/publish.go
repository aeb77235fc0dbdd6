// Package documents makes what describes the API from what is registered: OpenAPI, AsyncAPI, the tables of the machines, and the page
// that shows them.
package documents

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines/diagram"
)

//go:embed docs
var assets embed.FS

// docsPolicy lets the page use its own files and nothing else.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Set are the documents: what describes the API, made of what is registered.
type Set struct {
	files map[string]file // that do not change
	more  []func(*Async)  // of what goes over NATS

	rest  *rest.Server
	store *entities.Store
}

// New makes a set that is empty until [Set.Publish].
func New(d *rest.Server, st *entities.Store) *Set {
	return &Set{files: map[string]file{}, rest: d, store: st}
}

// Describe adds what goes over NATS besides commands, events and reads. It is to be called before [Set.Publish].
func (s *Set) Describe(more func(*Async)) { s.more = append(s.more, more) }

// Routes serve the documents.
func (s *Set) Routes() []*rest.Route {
	tags := []string{"server"}
	anything := func(contentType, doc string) map[string]*huma.Response {
		return map[string]*huma.Response{
			"200": {Description: doc, Content: map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{}}}},
			"304": {Description: "The document is still at the ETag"},
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

// Publish makes the documents. They are complete when New returns.
func (s *Set) Publish() error {
	spec, yaml, err := s.openAPI()
	if err != nil {
		return err
	}
	s.keep("/openapi.json", "application/json", spec, "")
	s.keep("/openapi.yaml", "application/yaml", yaml, "")
	async, err := s.published(s.asyncAPI())
	if err != nil {
		return fmt.Errorf("api: cannot write the AsyncAPI document: %w", err)
	}
	s.keep("/asyncapi.json", "application/json", async, "")
	return s.publishDocs()
}

func (s *Set) publishDocs() error {
	graphs := entities.MachineList{Items: []entities.Graph{}}
	for _, m := range s.store.Machines {
		graphs.Items = append(graphs.Items, entities.GraphOf(m))
	}
	list, err := indented(graphs)
	if err != nil {
		return fmt.Errorf("api: cannot write the machines: %w", err)
	}
	s.keep("/docs/machines.json", "application/json", list, "")
	page, err := template.New("docs.html").Funcs(template.FuncMap{"mermaid": diagram.Mermaid}).ParseFS(assets, "docs/docs.html")
	if err != nil {
		return fmt.Errorf("api: cannot read the page: %w", err)
	}
	var html bytes.Buffer
	if err := page.Execute(&html, map[string]any{"Kinds": problem.Kinds, "Machines": s.store.Machines, "Version": s.rest.API.OpenAPI().Info.Version}); err != nil {
		return fmt.Errorf("api: cannot write the page: %w", err)
	}
	s.keep("/docs", "text/html; charset=utf-8", html.Bytes(), docsPolicy)
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

// file is a document that does not change while the process runs.
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
