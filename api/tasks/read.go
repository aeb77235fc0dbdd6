package tasks

// What tasks have written: GET …/documents lists those of the last success, GET …/document is one of them, and GET …/logs follows the log lines as server-sent events.

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/sse"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
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
		Parameters: []*huma.Param{taskParam(), rest.NamespaceParam(), repositoryParam(), rest.QueryParam("name", "Its name, or how that ends after a slash", rest.Text(1024))},
		Responses:  map[string]*huma.Response{"200": {Description: "The document, of the media type that it was written with", Content: map[string]*huma.MediaType{"application/octet-stream": {}}}},
	}}
}

func (s *Service) document(q *rest.Request) error {
	r, err := s.result(q)
	if err != nil {
		return err
	}
	name := q.Query.Get("name")
	for _, d := range r.Documents {
		if name == "" || d.Name != name && !strings.HasSuffix(d.Name, "/"+name) {
			continue
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
	return problem.New("not-found", "the last success of the task has no such document")
}

func (s *Service) logsRoute() *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.logs, Op: huma.Operation{
		OperationID: "tasks-logs", Method: http.MethodGet, Path: "/v1/tasks/{id}/logs", Tags: tags, Summary: "Log lines of a task, as they are written",
		Description: "Server-sent events of the type log: the lines that are kept, then those that come. The id of an event continues behind it. Only the last lines of a task are kept.",
		Errors:      []int{404, 422, 429, 503},
		Parameters: []*huma.Param{
			taskParam(), rest.NamespaceParam(), repositoryParam(), rest.QueryParam("follow", "Go on with what comes; true by default", rest.Boolean()), rest.HeaderParam("Last-Event-ID", "Continue after this event", "17"),
		},
		Responses: map[string]*huma.Response{"200": {Description: "The lines", Content: map[string]*huma.MediaType{"text/event-stream": {}}}},
	}}
}

func (s *Service) logs(q *rest.Request) error {
	item, err := s.find(q)
	if err != nil {
		return err
	}
	after := uint64(0)
	if text := q.R.Header.Get("Last-Event-ID"); text != "" {
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			return problem.Invalid("header.Last-Event-ID", "is not an id of this stream")
		}
	}
	leave, err := q.TakeWatch()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	defer context.AfterFunc(s.rest.Closing(), cancel)()
	config := jetstream.OrderedConsumerConfig{FilterSubjects: []string{s.store.Names.Log(task.Machine.Name, item.Key)}, DeliverPolicy: jetstream.DeliverAllPolicy}
	if after > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, after+1
	}
	consumer, err := s.js.OrderedConsumer(ctx, s.store.Names.Stream(streams.LogStream), config)
	if err != nil {
		return err
	}
	there := consumer.CachedInfo().NumPending
	lines, err := consumer.Messages() // one consumer for all of them: each Next of an ordered one would make another
	if err != nil {
		return err
	}
	defer lines.Stop()
	defer context.AfterFunc(ctx, lines.Stop)()
	w := sse.New(q.W)
	follow := q.Query.Get("follow") != "false"
	for w.Err == nil && ctx.Err() == nil {
		if !follow && there == 0 {
			w.Notice("end", "these are the lines that are kept")
			return nil
		}
		m, err := lines.Next(jetstream.NextMaxWait(sse.Heartbeat))
		switch {
		case errors.Is(err, nats.ErrTimeout):
			w.Comment()
			w.Flush()
			continue
		case err != nil:
			w.Notice("end", "the log cannot be read now; come back")
			return nil
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil
		}
		w.Send("log", strconv.FormatUint(meta.Sequence.Stream, 10), Line{At: meta.Timestamp, Attempt: m.Headers().Get(streams.HeaderAttempt), Line: string(m.Data())})
		if there = meta.NumPending; there == 0 {
			w.Flush()
		}
	}
	return nil
}

// Line is one line of a log.
type Line struct {
	At      time.Time `json:"at"`
	Attempt string    `json:"attempt,omitempty"`
	Line    string    `json:"line"`
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
	e, err := s.store.Load(q, task.Machine, item.Key)
	if err != nil {
		return err
	}
	q.W.Header()["Etag"] = []string{rest.ETag(e.Revision)}
	return q.JSON(http.StatusOK, e)
}
