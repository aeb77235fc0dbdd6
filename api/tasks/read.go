package tasks

// What tasks have written: GET …/documents lists those of the last success, GET …/document is one of them. Its log is in logs.go.

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines/task"
)

// Documents are those of a task's last success.
type Documents struct {
	Documents []task.Document `json:"documents" nullable:"false"`
	Summary   string          `json:"summary,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
}

// maxDocument is how large a document may be that is read over HTTP.
const maxDocument = 64 << 20

func (s *Service) documentsRoute(r *rest.Router) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.documents, Op: huma.Operation{
		OperationID: "tasks-documents", Method: http.MethodGet, Path: "/v1/tasks/{id}/documents", Tags: tags, Summary: "Documents of a task", Errors: []int{404, 422, 503},
		Parameters: []*huma.Param{taskParam(), rest.NamespaceParam(), repositoryParam()},
		Responses:  map[string]*huma.Response{"200": {Description: "Those of its last success", Content: r.BodyOf(reflect.TypeFor[Documents]())}},
	}}
}

func (s *Service) result(q *rest.Request) (*task.Result, error) {
	item, err := s.find(q)
	if err != nil {
		return nil, err
	}
	_, stored, err := s.store.LoadStored(q, task.Machine, item.Key)
	if err != nil {
		return nil, err
	}
	e, err := task.Machine.Decode(stored.Value)
	if err != nil {
		return nil, err
	}
	if r := e.Data.(*task.Data).Result; r != nil {
		return r, nil
	}
	return &task.Result{}, nil
}

func (s *Service) documents(q *rest.Request) error {
	r, err := s.result(q)
	if err != nil {
		return err
	}
	out := Documents{Documents: r.Documents, Summary: r.Summary, Output: r.Output}
	if out.Documents == nil {
		out.Documents = []task.Document{}
	}
	return q.JSON(http.StatusOK, out)
}

func (s *Service) documentRoute(*rest.Router) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.document, Op: huma.Operation{
		OperationID: "tasks-document", Method: http.MethodGet, Path: "/v1/tasks/{id}/document", Tags: tags, Summary: "One document of a task", Errors: []int{404, 413, 422, 503},
		Parameters: []*huma.Param{taskParam(), rest.NamespaceParam(), repositoryParam(), rest.QueryParam("name", "Its name, or how that ends after a slash; needed", rest.Text(1024))},
		Responses:  map[string]*huma.Response{"200": {Description: "The document, of the media type that it was written with", Content: map[string]*huma.MediaType{"application/octet-stream": {}}}},
	}}
}

func (s *Service) document(q *rest.Request) error {
	r, err := s.result(q)
	if err != nil {
		return err
	}
	name := q.Query.Get("name")
	if name == "" {
		return problem.Invalid("query.name", "is needed: "+documentsOf(r))
	}
	for _, d := range r.Documents {
		if d.Name != name && !strings.HasSuffix(d.Name, "/"+name) {
			continue
		}
		if !task.NamesDocument(d.Name) { // as an older version may have stored it: who asks under it loses the connection
			return problem.New("not-found", "the document has a name that none can have")
		}
		if d.Size > maxDocument {
			return problem.New(problem.CodeAnswer, "the document is larger than 64 MiB; read it with nats object get")
		}
		ctx, cancel := context.WithTimeout(q.Context(), time.Minute)
		defer cancel()
		bucket, err := s.js.ObjectStore(ctx, s.store.Names.Bucket(task.DocumentBucket))
		if err != nil {
			return err
		}
		o, err := bucket.Get(ctx, d.Name)
		if errors.Is(err, jetstream.ErrObjectNotFound) {
			return problem.New("not-found", "the document was erased")
		}
		if err != nil {
			return err
		}
		defer o.Close()
		body, err := io.ReadAll(io.LimitReader(o, maxDocument+1))
		if err != nil {
			return err
		}
		q.W.Header().Set("X-Content-Type-Options", "nosniff")
		q.W.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'") // it is not ours
		mediaType := d.MediaType
		if mediaType == "" {
			mediaType = "application/octet-stream"
		}
		return q.Text(mediaType, body)
	}
	return problem.New("not-found", documentsOf(r))
}

// documentsOf says what may be asked for: how each name ends.
func documentsOf(r *task.Result) string {
	const most = 20
	var names []string
	for _, d := range r.Documents[:min(len(r.Documents), most)] {
		names = append(names, path.Base(d.Name))
	}
	switch {
	case len(names) == 0:
		return "the last success of the task has no documents"
	case len(r.Documents) > most:
		names = append(names, "and more")
	}
	return "the last success of the task has " + strings.Join(names, ", ")
}

func (s *Service) readRoute(r *rest.Router) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.read, Op: huma.Operation{
		OperationID: "tasks-get", Method: http.MethodGet, Path: "/v1/tasks/{id}", Tags: tags, Summary: "Read one task by its name alone",
		Description: "As /v1/repositories/{repository}/tasks/{id}: every write acknowledged before is in the answer.",
		Errors:      []int{404, 422, 503, 504}, Parameters: []*huma.Param{taskParam(), rest.NamespaceParam(), repositoryParam()},
		Responses: map[string]*huma.Response{"200": {
			Description: "The entity", Headers: map[string]*huma.Param{"ETag": {Schema: rest.Text(32)}},
			Content: map[string]*huma.MediaType{"application/json": {Schema: entities.EntitySchema(r, task.Machine)}},
		}},
	}}
}

func (s *Service) read(q *rest.Request) error {
	item, err := s.find(q)
	if err != nil {
		return err
	}
	e, stored, err := s.store.LoadStored(q, task.Machine, item.Key)
	if err != nil {
		return err
	}
	q.W.Header()["Etag"] = []string{rest.ETag(e.Revision)}
	e.Forbid(task.Machine, stored, q.Who.Name)
	return q.JSON(http.StatusOK, e)
}
