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

// Stays is how long entities of a machine are in its states, as the index of this node has seen it since it was started.
type Stays struct {
	Machine string `json:"machine"`
	States  []Stay `json:"states" nullable:"false" doc:"States that an entity has left; in the order of the table"`
}

// Stay is that of one state.
type Stay struct {
	State string  `json:"state"`
	Count int     `json:"count" doc:"Of so many stays, at most the newest 500"`
	P50   float64 `json:"p50Seconds" doc:"Half of them took up to so long"`
	P95   float64 `json:"p95Seconds" doc:"95 % of them took up to so long"`
}

func (s *Server) staysRoute(r *rest.Router) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.stays, Op: huma.Operation{
		OperationID: "machine-stays", Method: http.MethodGet, Path: "/v1/machines/{machine}/stays", Tags: []string{"machines"}, Summary: "Read how long entities stay in the states of one machine",
		Description: "Of the whole cluster, as this node sees it. What was over before its start is not in it, nor is what is not over yet.", Errors: []int{403, 404},
		Parameters: []*huma.Param{machineParam()}, Responses: map[string]*huma.Response{"200": {Description: "How long", Content: r.BodyOf(reflect.TypeFor[Stays]())}},
	}}
}

func (s *Server) stays(q *rest.Request) error {
	m, err := s.machine(q)
	if err != nil {
		return err
	}
	if p := q.Who.OfAll("these numbers"); p != nil {
		return p
	}
	out := Stays{Machine: m.Name, States: []Stay{}}
	all := s.store.Index(m.Name).Stays()
	for _, st := range m.States {
		if of, left := all[st.Name]; left {
			out.States = append(out.States, Stay{State: st.Name, Count: of.Count, P50: of.P50.Seconds(), P95: of.P95.Seconds()})
		}
	}
	return q.JSON(http.StatusOK, out)
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
