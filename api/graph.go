package api

// The routes under /v1/machines: the tables of machines as JSON, their diagrams, and counts of their entities by state.
// Tables and diagrams are made from machines.Machine alone (entities.GraphOf, package diagram); counts come from the index
// of this node, at minRevision if that is given, and of the namespaces that the token may see.

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/diagram"
)

// Counts is how many entities are in each state.
type Counts struct {
	Machine  string         `json:"machine"`
	Total    int            `json:"total"`
	States   map[string]int `json:"states" doc:"Entities by state; states without entities included"`
	Parked   int            `json:"parked" doc:"Entities whose stored value cannot be read"`
	Revision uint64         `json:"revision" doc:"The counts include all writes up to this revision"`
	Stale    float64        `json:"staleSeconds,omitempty" doc:"The node receives nothing from the bucket, or cannot reach the others: the counts are its state of so many seconds ago"`
}

// AllCounts are the counts of all machines.
type AllCounts struct {
	Items []Counts `json:"items" nullable:"false"`
}

func (s *Server) graphRoutes(r *rest.Router) []*rest.Route {
	tags := []string{"machines"}
	graph := map[string]*huma.MediaType{"application/json": {Schema: r.Registry().Schema(reflect.TypeFor[entities.Graph](), true, "")}}
	format := rest.QueryParam("format", "mermaid (default), dot or json; the Accept header is the other way to say so", &huma.Schema{Type: huma.TypeString, Enum: []any{"mermaid", "dot", "json"}})
	drawn := map[string]*huma.MediaType{"text/vnd.mermaid": {Schema: rest.Text(1 << 20)}, "text/vnd.graphviz": {Schema: rest.Text(1 << 20)}}
	drawn["application/json"] = graph["application/json"]
	namespace := rest.QueryParam("namespace", "The namespace; * is all. Default: all that the token may see", rest.Text(63))
	return []*rest.Route{
		{Role: auth.Read, Serve: s.allCounts, Op: huma.Operation{
			OperationID: "count-machines", Method: http.MethodGet, Path: "/v1/counts", Tags: tags, Summary: "Count the entities of all machines by state", Errors: []int{503}, Parameters: []*huma.Param{namespace},
			Responses: map[string]*huma.Response{"200": {Description: "The counts", Headers: map[string]*huma.Param{rest.HeaderStale: rest.StaleHeader()}, Content: r.BodyOf(reflect.TypeFor[AllCounts]())}},
		}},
		{Role: auth.Read, Serve: s.graphs, Op: huma.Operation{
			OperationID: "list-machines", Method: http.MethodGet, Path: "/v1/machines", Tags: tags, Summary: "List the machines with their tables",
			Responses: map[string]*huma.Response{"200": {Description: "All machines", Content: r.BodyOf(reflect.TypeFor[entities.MachineList]())}},
		}},
		{Role: auth.Read, Serve: s.graph, Op: huma.Operation{
			OperationID: "get-machine", Method: http.MethodGet, Path: "/v1/machines/{machine}", Tags: tags, Summary: "Read the table of one machine", Errors: []int{404},
			Parameters: []*huma.Param{machineParam()}, Responses: map[string]*huma.Response{"200": {Description: "The machine", Content: graph}},
		}},
		s.activityRoute(r), s.staysRoute(r),
		{Role: auth.Read, Serve: s.commandForm, Op: huma.Operation{
			OperationID: "get-machine-command", Method: http.MethodGet, Path: "/v1/machines/{machine}/commands/{command}", Tags: tags, Summary: "Read how one command is sent", Errors: []int{404},
			Parameters: []*huma.Param{machineParam(), {Name: "command", In: "path", Required: true, Example: "update", Schema: rest.Text(63)}}, Responses: map[string]*huma.Response{"200": {Description: "The command", Content: r.BodyOf(reflect.TypeFor[CommandForm]())}},
		}},
		{Role: auth.Read, Serve: s.diagram, Op: huma.Operation{
			OperationID: "draw-machine", Method: http.MethodGet, Path: "/v1/machines/{machine}/diagram", Tags: tags, Summary: "Draw the diagram of one machine", Errors: []int{404, 406},
			Parameters: []*huma.Param{machineParam(), format}, Responses: map[string]*huma.Response{"200": {Description: "The diagram", Content: drawn}},
		}},
		{Role: auth.Read, Serve: s.counts, Op: huma.Operation{
			OperationID: "count-machine", Method: http.MethodGet, Path: "/v1/machines/{machine}/counts", Tags: tags, Summary: "Count the entities of one machine by state", Errors: []int{404, 503, 504},
			Parameters: []*huma.Param{machineParam(), namespace, rest.QueryParam("minRevision", "Wait until this revision is counted, up to 5 s", rest.Number(0))},
			Responses:  map[string]*huma.Response{"200": {Description: "The counts", Headers: map[string]*huma.Param{rest.HeaderStale: rest.StaleHeader()}, Content: r.BodyOf(reflect.TypeFor[Counts]())}},
		}},
	}
}

func machineParam() *huma.Param {
	return &huma.Param{Name: "machine", In: "path", Required: true, Example: "service", Schema: rest.Text(63)}
}

func (s *Server) machine(q *rest.Request) (*machines.Machine, error) {
	if m := s.store.Machines.Get(q.PathValue("machine")); m != nil {
		return m, nil
	}
	return nil, problem.New(machines.CodeNotFound, "there is no such machine")
}

func (s *Server) graphs(q *rest.Request) error {
	return q.JSON(http.StatusOK, entities.MachineList{Items: entities.Graphs(s.store.Machines.All())})
}

func (s *Server) graph(q *rest.Request) error {
	m, err := s.machine(q)
	if err != nil {
		return err
	}
	return q.JSON(http.StatusOK, entities.GraphOf(m))
}

func (s *Server) diagram(q *rest.Request) error {
	m, err := s.machine(q)
	if err != nil {
		return err
	}
	format := q.Query.Get("format")
	if format == "" {
		if format = drawnAs(q.R.Header.Get("Accept")); format == "" {
			return problem.New(problem.CodeAcceptable, "a diagram is text/vnd.mermaid, text/vnd.graphviz or application/json")
		}
	}
	q.W.Header().Set("Vary", "Accept")
	switch format {
	case "dot":
		return q.Text("text/vnd.graphviz; charset=utf-8", []byte(diagram.DOT(m)))
	case "json":
		return q.JSON(http.StatusOK, entities.GraphOf(m))
	}
	return q.Text("text/vnd.mermaid; charset=utf-8", []byte(diagram.Mermaid(m)))
}

// drawnAs picks the first form that Accept names and that exists.
func drawnAs(accept string) string {
	if accept == "" {
		return "mermaid"
	}
	for _, part := range strings.Split(accept, ",") {
		t, _, _ := strings.Cut(part, ";")
		switch strings.TrimSpace(t) {
		case "text/vnd.mermaid", "text/plain", "text/*", "*/*":
			return "mermaid"
		case "text/vnd.graphviz":
			return "dot"
		case "application/json", "application/*":
			return "json"
		}
	}
	return ""
}

func (s *Server) counts(q *rest.Request) error {
	m, err := s.machine(q)
	if err != nil {
		return err
	}
	ns, err := counted(q)
	if err != nil {
		return err
	}
	if err := s.store.Indexed(m.Name); err != nil {
		return err
	}
	if err := s.store.WaitIndex(q, m); err != nil {
		return err
	}
	return q.JSON(http.StatusOK, s.countsOf(q, m, ns))
}

func (s *Server) allCounts(q *rest.Request) error {
	ns, err := counted(q)
	if err != nil {
		return err
	}
	out := AllCounts{Items: []Counts{}}
	for _, m := range s.store.Machines.All() {
		if err := s.store.Indexed(m.Name); err != nil {
			return err
		}
		out.Items = append(out.Items, s.countsOf(q, m, ns))
	}
	return q.JSON(http.StatusOK, out)
}

// counted is the namespace whose entities a request has counted; empty is all.
func counted(q *rest.Request) (string, error) {
	asked := q.Query.Get("namespace")
	if asked == "" {
		asked = auth.AnyNamespace
	}
	ns, p := q.Who.Resolve(asked, true)
	if p != nil {
		return "", p
	}
	return ns, nil
}

func (s *Server) countsOf(q *rest.Request, m *machines.Machine, ns string) Counts {
	ix := s.store.Index(m.Name)
	out := Counts{Machine: m.Name, States: map[string]int{}, Revision: ix.Revision(), Stale: s.store.MarkStale(q, m)}
	for _, st := range m.States {
		out.States[st.Name] = 0
	}
	for state, n := range ix.Counts(ns) {
		out.Total += n
		if _, known := m.State(state); known {
			out.States[state] = n
		} else {
			out.Parked += n
		}
	}
	return out
}
