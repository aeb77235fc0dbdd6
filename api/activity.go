package api

import (
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv/index"
)

// Activities are what has happened within the last hour, as the index of this node has seen it since it was started.
type Activities struct {
	Step     int               `json:"stepSeconds" doc:"Each number is of so many seconds; the last one is not over yet"`
	Until    time.Time         `json:"until"`
	Machines []MachineActivity `json:"machines" nullable:"false"`
}

// MachineActivity is that of one machine, the oldest numbers first.
type MachineActivity struct {
	Machine     string   `json:"machine"`
	Transitions []uint64 `json:"transitions" nullable:"false" doc:"Transitions of all entities"`
	Failures    []uint64 `json:"failures" nullable:"false" doc:"Entities that came into a state that needs somebody"`
}

func (s *Server) activityRoute(r *rest.Router) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.activity, Op: huma.Operation{
		OperationID: "activity", Method: http.MethodGet, Path: "/v1/activity", Tags: []string{"machines"}, Summary: "Read how much has happened within the last hour",
		Description: "Transitions of the whole cluster, as this node sees them. What was before its start is not counted.",
		Responses:   map[string]*huma.Response{"200": {Description: "Numbers for each machine", Content: r.BodyOf(reflect.TypeFor[Activities]())}},
	}}
}

func (s *Server) activity(q *rest.Request) error {
	if p := q.Who.OfAll("these numbers"); p != nil {
		return p
	}
	now := time.Now().UTC()
	out := Activities{Step: int(index.ActivityStep.Seconds()), Until: now, Machines: []MachineActivity{}}
	for _, m := range s.store.Machines.All() {
		a := s.store.Index(m.Name).Activity(now)
		one := MachineActivity{Machine: m.Name, Transitions: a.Transitions, Failures: make([]uint64, index.ActivitySteps)}
		for state, entered := range a.Entered {
			if st, known := m.State(state); known && st.Failed {
				for i, n := range entered {
					one.Failures[i] += n
				}
			}
		}
		out.Machines = append(out.Machines, one)
	}
	return q.JSON(http.StatusOK, out)
}
