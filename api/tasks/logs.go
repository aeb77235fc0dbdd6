package tasks

// Log lines as server-sent events: those of one task (GET /v1/tasks/{id}/logs), or of several over one connection (GET /v1/logs), as a browser needs that shows some in several tabs. Both are one
// consumer (package api/logs).

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/logs"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
)

// mostLogs is how many logs one connection follows.
const mostLogs = 64

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

func (s *Service) allLogsRoute() *rest.Route {
	of := rest.QueryParam("task", "<namespace>.<repository>.<task> (without a namespace, that of the token), and with a colon behind it the id of the event after which its lines are wanted; up to 64", &huma.Schema{Type: huma.TypeArray, Items: rest.Text(256), MaxItems: new(mostLogs)})
	of.Example = []string{"default.shop.lint:17"}
	return &rest.Route{Role: auth.Read, Serve: s.allLogs, Op: huma.Operation{
		OperationID: "logs", Method: http.MethodGet, Path: "/v1/logs", Tags: tags, Summary: "Log lines of several tasks over one connection",
		Description: "Server-sent events of the type log, each with its task: the lines that are kept, then those that come. With Last-Event-ID all continue behind that event. A task that is not there has no lines; a namespace that the token may not see is not found.",
		Errors:      []int{403, 404, 422, 429, 503},
		Parameters:  []*huma.Param{of, rest.HeaderParam("Last-Event-ID", "Continue after this event", "17")},
		Responses:   map[string]*huma.Response{"200": {Description: "The lines", Content: map[string]*huma.MediaType{"text/event-stream": {}}}},
	}}
}

func (s *Service) lines() *logs.Reader {
	return &logs.Reader{Rest: s.rest, JS: s.js, Names: s.store.Names}
}

func (s *Service) logs(q *rest.Request) error {
	item, err := s.find(q)
	if err != nil {
		return err
	}
	return s.lines().Follow(q, logs.Followed{s.store.Names.Log(task.Machine.Name, item.Key): {}}, q.Query.Get("follow") != "false")
}

func (s *Service) allLogs(q *rest.Request) error {
	wanted := logs.Followed{}
	for _, text := range q.Values("task") {
		key, position, has := strings.Cut(text, ":")
		tokens := strings.Split(key, ".")
		if len(tokens) != 3 || !machines.IsLabel(tokens[1]) || !machines.IsLabel(tokens[2]) {
			return problem.Invalid("query.task", "must be <namespace>.<repository>.<task>, or that with :<id> behind it")
		}
		namespace, p := q.Who.Resolve(tokens[0], false)
		if p != nil {
			return p
		}
		tokens[0] = namespace
		of := logs.Log{Task: strings.Join(tokens, ".")}
		if has {
			var err error
			if of.After, err = strconv.ParseUint(position, 10, 64); err != nil {
				return problem.Invalid("query.task", "must have the id of an event behind the colon")
			}
		}
		wanted[s.store.Names.Log(task.Machine.Name, of.Task)] = of
	}
	if len(wanted) == 0 || len(wanted) > mostLogs {
		return problem.Invalid("query.task", "must be 1 to 64")
	}
	return s.lines().Follow(q, wanted, true)
}
