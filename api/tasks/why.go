package tasks

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines/task"
)

// Waits says why a task does not run.
type Waits struct {
	JobID string `json:"job_id"`
	State string `json:"state" doc:"As the node sees it that schedules"`
	Why   string `json:"why" doc:"What is against its start now; of one that is not queued, its state"`
}

func (s *Service) whyRoute(r *rest.Router) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.waits, Op: huma.Operation{
		OperationID: "tasks-why", Method: http.MethodGet, Path: "/v1/tasks/{id}/why", Tags: tags, Summary: "Why a task does not start",
		Description: "What is against its start now: its time, a task that it runs after, its unique key, a pause, a pool for which no worker asks, a limit or a rate. The node that schedules is asked.",
		Errors:      []int{404, 422, 503}, Parameters: []*huma.Param{taskParam(), rest.NamespaceParam(), repositoryParam()},
		Responses: map[string]*huma.Response{"200": {Description: "The first thing that is against it", Content: r.BodyOf(reflect.TypeFor[Waits]())}},
	}}
}

func (s *Service) waits(q *rest.Request) error {
	item, err := s.find(q)
	if err != nil {
		return err
	}
	state, why, err := s.why(q.Context(), item.Key)
	if err != nil {
		return problem.Unavailable(err.Error())
	}
	if why == "" {
		why = "it is " + state
	} else if e, err := s.store.Load(q, task.Machine, item.Key); err == nil && e.State == task.Queued && e.LastError != nil { // who schedules does not know it
		why += "; its last attempt failed: " + e.LastError.Error()
	}
	return q.JSON(http.StatusOK, Waits{JobID: jobOf(item.Key), State: state, Why: why})
}
