// Package tasks has the operations on tasks that are not generated from their table: commands by the name of a task alone, all tasks of a repository at once, the clean-up of those that are
// stuck, documents, and logs as they are written.
//
// A command goes: find (which task) → package commands → the engine, whose answer becomes a [Job].
package tasks

// Routes, and POST /v1/tasks/{id}/run, cancel and their like: command. The rest is in runall.go, read.go and logs.go.

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Job is the answer to a command of a task.
type Job struct {
	JobID   string `json:"job_id" doc:"<repository>.<task>: a task has at most one job"`
	Status  string `json:"status" doc:"State of the task after the command"`
	Already bool   `json:"already,omitempty" doc:"It was so before: nothing was changed"`
	Version uint64 `json:"version"`
}

// Service has the operations. Use [New].
type Service struct {
	rest   *rest.Server
	store  *entities.Store
	sender *commands.Sender
	js     jetstream.JetStream
	why    func(ctx context.Context, key string) (state, why string, err error)
}

// New makes the operations of a server's parts. why asks whoever schedules why a task does not start.
func New(r *rest.Server, st *entities.Store, se *commands.Sender, js jetstream.JetStream, why func(ctx context.Context, key string) (state, why string, err error)) *Service {
	return &Service{rest: r, store: st, sender: se, js: js, why: why}
}

var tags = []string{"task"}

// answerWithin is how long the engine may take for one command.
const answerWithin = 10 * time.Second

// Routes are the operations.
func (s *Service) Routes(r *rest.Router) []*rest.Route {
	var routes []*rest.Route
	for _, name := range []string{task.CommandRun, task.CommandRetry, task.CommandCancel, task.CommandReset, task.CommandForceReset} {
		routes = append(routes, s.commandRoute(r, name))
	}
	return append(routes, s.readRoute(r), s.runAllRoute(r), s.cleanUpRoute(r), s.documentsRoute(r), s.documentRoute(r), s.logsRoute(), s.allLogsRoute(), s.whyRoute(r))
}

func taskParam() *huma.Param {
	return &huma.Param{Name: "id", In: "path", Required: true, Description: "Its name, or <repository>.<task> as in job_id", Example: "shop.lint", Schema: rest.Text(127)}
}

func repositoryParam() *huma.Param {
	return rest.QueryParam("repository", "Its repository; needed only where several have a task of this name, and the path names none", rest.Text(63))
}

// named is the task that a request names, and its repository if it does.
func named(q *rest.Request) (repo, id string, p *problem.Problem) {
	repo, id = q.Query.Get("repository"), q.PathValue("id")
	if parent, own, has := strings.Cut(id, "."); has {
		if repo != "" && repo != parent {
			return "", "", problem.Invalid("query.repository", "is another one than that of the path")
		}
		repo, id = parent, own
		if !machines.IsLabel(repo) {
			return "", "", problem.Invalid("path.id", "the repository "+problem.LabelRule)
		}
	}
	switch {
	case !machines.IsLabel(id):
		return "", "", problem.Invalid("path.id", problem.LabelRule+", or two of them with a dot between: <repository>.<task>")
	case repo != "" && !machines.IsLabel(repo):
		return "", "", problem.Invalid("query.repository", problem.LabelRule)
	}
	return repo, id, nil
}

func (s *Service) commandRoute(r *rest.Router, name string) *rest.Route {
	c, _ := task.Machine.Input(name)
	rt := &rest.Route{Role: auth.Operate, Op: huma.Operation{
		OperationID: "tasks-" + name, Method: http.MethodPost, Path: "/v1/tasks/{id}/" + name, Tags: tags, Summary: name,
		Description: c.Doc + " As the command of /v1/repositories/{repository}/tasks/{id}, by the name of the task alone.",
		Errors:      []int{400, 404, 409, 413, 415, 422, 429, 503}, Parameters: []*huma.Param{taskParam(), rest.NamespaceParam(), repositoryParam(), rest.HeaderParam("Idempotency-Key", "Makes the command repeatable", "7f1c2a"), rest.HeaderParam("Instar-Reason", "Why; shown in the timeline", "planned upgrade")},
		Extensions: map[string]any{"x-destructive": c.Destructive},
		Responses:  map[string]*huma.Response{"200": {Description: "It is done, or was so before", Content: r.BodyOf(reflect.TypeFor[Job]())}},
	}}
	var schema *huma.Schema
	if c.Body != nil {
		schema = r.Registry().Schema(reflect.TypeOf(c.Body), true, "")
		rt.Op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
	}
	rt.Serve = func(q *rest.Request) error { return s.command(q, name, schema) }
	return rt
}

// command sends one command to the task that the path names.
func (s *Service) command(q *rest.Request, name string, schema *huma.Schema) error {
	var body []byte
	if schema != nil {
		var p *problem.Problem
		if body, p = q.Body(schema); p != nil {
			return p
		}
	}
	item, err := s.find(q)
	if err != nil {
		return err
	}
	cmd := publish.Command{Machine: task.Machine.Name, Key: item.Key, Name: name, Actor: q.Who.Name, Trace: rest.Traceparent(q.Context()), Body: body}
	var p *problem.Problem
	if cmd.ID, p = rest.IdempotencyKey(q.R); p != nil {
		return p
	}
	if cmd.Reason, p = rest.Reason(q.R); p != nil {
		return p
	}
	if p := s.sender.Admit(cmd); p != nil {
		return p
	}
	sent, err := s.sender.Send(q, cmd, false)
	if err != nil {
		return commands.Problem(err)
	}
	a, err := sent.Answer(q, 0)
	if err != nil {
		return commands.Problem(err)
	}
	if p := commands.Denied(task.Machine, a); p != nil {
		return p
	}
	return q.JSON(http.StatusOK, Job{JobID: a.Parent + "." + a.ID, Status: a.State, Already: a.Outcome == machines.Unchanged, Version: a.Version})
}

// find is the task of that name, of the repository that the path or the query names, or of the only one that has it.
func (s *Service) find(q *rest.Request) (index.Item, error) {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), false)
	if p != nil {
		return index.Item{}, p
	}
	if err := s.store.Indexed(task.Machine.Name); err != nil {
		return index.Item{}, err
	}
	repo, id, p := named(q)
	if p != nil {
		return index.Item{}, p
	}
	ix := s.store.Index(task.Machine.Name)
	if repo != "" {
		item, ok := ix.Get(machines.Key(ns, repo, id))
		if !ok { // it may have been created just now
			e, err := s.store.Load(q, task.Machine, machines.Key(ns, repo, id))
			if err != nil {
				return index.Item{}, err
			}
			return index.Item{Key: machines.Key(ns, repo, id), State: e.State}, nil
		}
		return item, nil
	}
	var found []index.Item
	repositories := s.store.Index(task.Machine.Parent)
	for after := ""; len(found) < 2; {
		page := repositories.List(index.Query{Namespace: ns, After: after, Limit: 1000})
		for _, repo := range page.Items {
			if item, ok := ix.Get(repo.Key + "." + id); ok && item.State != task.Deleted {
				found = append(found, item)
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	switch len(found) {
	case 0:
		return s.findStored(q, ns, id)
	case 1:
		return found[0], nil
	}
	return index.Item{}, problem.Invalid("query.repository", "is needed: several repositories have a task of this name; or name it <repository>.<task>")
}

// findStored asks the leader for a task that no index has, in the turn of the client: it may have been created just now.
func (s *Service) findStored(q *rest.Request, ns, id string) (item index.Item, err error) {
	bucket := s.store.Names.Bucket(task.Machine.Plural)
	err = q.InTurn(func() error {
		m, err := streams.Last(q.Context(), s.js.Conn(), streams.BucketStream(bucket), streams.BucketSubject(bucket, machines.Key(ns, "*", id)))
		if err != nil {
			return err
		}
		if m == nil {
			return entities.NotFound(task.Machine)
		}
		_, key, _ := streams.BucketKey(m.Subject)
		e, _, err := s.store.Shown(q, task.Machine, key)
		if err == nil && e.State == task.Deleted {
			err = entities.NotFound(task.Machine)
		}
		if err == nil {
			item = index.Item{Key: key, State: e.State}
		}
		return err
	})
	return item, err
}

// ask sends a command and reads its answer, in the turn of nobody: the caller has one.
func (s *Service) ask(cmd publish.Command) (a machines.Answer, err error) {
	m, err := s.sender.AskUntil(time.Now().Add(answerWithin), cmd)
	if err == nil {
		err = json.Unmarshal(m.Data, &a)
	}
	return a, err
}
