package api

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"maps"
	"slices"

	"github.com/bcc94042/instar/machines"
)

//go:embed docs
var assets embed.FS

// docsPolicy lets the page use its own files and nothing else.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// publish makes the documents. They are complete when New returns.
func (s *Server) publish() error {
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

func (s *Server) publishDocs() error {
	graphs := MachineList{Items: []machines.Graph{}}
	for _, m := range s.o.Machines {
		graphs.Items = append(graphs.Items, m.Graph())
	}
	list, err := indented(graphs)
	if err != nil {
		return fmt.Errorf("api: cannot write the machines: %w", err)
	}
	s.keep("/docs/machines.json", "application/json", list, "")
	page, err := template.ParseFS(assets, "docs/docs.html")
	if err != nil {
		return fmt.Errorf("api: cannot read the page: %w", err)
	}
	var html bytes.Buffer
	if err := page.Execute(&html, map[string]any{"Kinds": kinds, "Machines": s.o.Machines, "Version": s.api.OpenAPI().Info.Version}); err != nil {
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

func (s *Server) keep(path, contentType string, body []byte, policy string) {
	sum := sha256.Sum256(body)
	s.files[path] = file{contentType, body, `"` + hex.EncodeToString(sum[:8]) + `"`, policy}
}

// OpenAPI is the document that /openapi.json serves.
func (s *Server) OpenAPI() []byte { return slices.Clone(s.files["/openapi.json"].body) }

// AsyncAPI is the document that /asyncapi.json serves.
func (s *Server) AsyncAPI() []byte { return slices.Clone(s.files["/asyncapi.json"].body) }

// Operation is one operation of the document with the role that it needs.
type Operation struct {
	ID, Method, Path string
	Role             Role // empty when nobody's role is needed
}

// Operations are all operations, hidden ones included, in the order of their paths.
func (s *Server) Operations() []Operation {
	found := map[string]Operation{}
	for _, rt := range s.routes {
		op := Operation{ID: rt.op.OperationID, Method: rt.op.Method, Path: rt.op.Path}
		if !rt.open {
			op.Role = rt.role
		}
		found[op.Path+" "+op.Method] = op
	}
	var all []Operation
	for _, at := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[at])
	}
	return all
}
