// Package documents makes what describes the API from what is registered: OpenAPI, AsyncAPI, the tables of the machines, and the page
// that shows them.
package documents

// The set of documents of one router. api/server.go makes it when routes are built: New, Routes, then Publish, which collects what is to be
// written. A document is written when it is first asked for, since that takes longer than all else of a start, and kept, with its ETag; a
// machine that is added gets a new router with a new set.

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

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
	files map[string]func() (file, error) // that do not change

	router   *rest.Router
	machines *registry.Registry
	names    streams.Names
}

// New makes a set that is empty until [Set.Publish].
func New(r *rest.Router, ms *registry.Registry, names streams.Names) *Set {
	return &Set{files: map[string]func() (file, error){}, router: r, machines: ms, names: names}
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

// Publish fixes what the documents tell: all that is registered. more adds to the AsyncAPI document what goes over NATS besides commands,
// events and reads. Nothing may be registered afterwards.
func (s *Set) Publish(more ...func(*Async)) error {
	open, async := s.openAPI(), s.asyncAPI(more)
	spec := sync.OnceValues(func() ([]byte, error) { return s.published(open) })
	s.keep("/openapi.json", "application/json", "", spec)
	s.keep("/openapi.yaml", "application/yaml", "", func() ([]byte, error) {
		text, err := spec()
		if err != nil {
			return nil, err
		}
		return asYAML(text)
	})
	s.keep("/asyncapi.json", "application/json", "", func() ([]byte, error) { return s.published(async) })
	s.keep("/docs/machines.json", "application/json", "", func() ([]byte, error) {
		return indented(entities.MachineList{Items: entities.Graphs(s.machines.All())})
	})
	return s.publishPage()
}

// publishPage keeps the page that shows the documents.
func (s *Set) publishPage() error {
	for name, contentType := range map[string]string{"docs.html": "text/html; charset=utf-8", "docs.js": "text/javascript; charset=utf-8", "docs.css": "text/css; charset=utf-8"} {
		b, err := assets.ReadFile("docs/" + name)
		if err != nil {
			return fmt.Errorf("api: cannot read the page: %w", err)
		}
		path, policy := "/docs/"+name, ""
		if name == "docs.html" {
			path, policy, b = "/docs", docsPolicy, []byte(s.page(string(b)))
		}
		s.keep(path, contentType, policy, func() ([]byte, error) { return b, nil })
	}
	return nil
}

// keep serves what write returns, which is called once.
func (s *Set) keep(path, contentType, policy string, write func() ([]byte, error)) {
	s.files[path] = sync.OnceValues(func() (f file, err error) {
		defer func() {
			if p := recover(); p != nil { // huma's way to say that it cannot describe something
				err = fmt.Errorf("api: cannot write %s: %v", path, p)
			}
		}()
		body, err := write()
		if err != nil {
			return file{}, fmt.Errorf("api: cannot write %s: %w", path, err)
		}
		sum := sha256.Sum256(body)
		return file{contentType, body, hex.EncodeToString(sum[:8]), policy}, nil
	})
}

// Check writes all documents, and returns why one cannot be.
func (s *Set) Check() error {
	for _, f := range s.files {
		if _, err := f(); err != nil {
			return err
		}
	}
	return nil
}

// OpenAPI is the document that /openapi.json serves; nil where it cannot be written: see [Set.Check].
func (s *Set) OpenAPI() []byte { return s.body("/openapi.json") }

// AsyncAPI is the document that /asyncapi.json serves; nil where it cannot be written.
func (s *Set) AsyncAPI() []byte { return s.body("/asyncapi.json") }

func (s *Set) body(path string) []byte {
	f, err := s.files[path]()
	if err != nil {
		return nil
	}
	return slices.Clone(f.body)
}

// file is a document that does not change.
type file struct {
	contentType string
	body        []byte
	tag         string // the value of its ETag
	policy      string // Content-Security-Policy, if not the one of the API
}

func (s *Set) file(q *rest.Request, path string) error {
	f, err := s.files[path]()
	if err != nil {
		return err
	}
	h := q.W.Header()
	h.Set("ETag", `"`+f.tag+`"`)
	if f.policy != "" {
		h.Set("Content-Security-Policy", f.policy)
	}
	if rest.Unchanged(q.R, f.tag) {
		q.W.WriteHeader(http.StatusNotModified)
		return nil
	}
	return q.Text(f.contentType, f.body)
}

// indented is a document for people and for diffs.
func indented(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return append(b, '\n'), err
}
