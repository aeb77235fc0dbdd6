package api

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/machines"
)

// MachineList is every machine as data.
type MachineList struct {
	Items []machines.Graph `json:"items"`
}

// Counts is how many entities are in each state.
type Counts struct {
	Machine  string         `json:"machine"`
	Total    int            `json:"total"`
	States   map[string]int `json:"states" doc:"Every state of the table, also those with none"`
	Parked   int            `json:"parked" doc:"Entities whose stored value cannot be read"`
	Revision uint64         `json:"revision" doc:"All writes up to this revision are counted"`
	Stale    float64        `json:"staleSeconds,omitempty" doc:"The node hears nothing from the bucket, or cannot hear the others: the counts are what it knew so many seconds ago"`
}

func (s *Server) graphRoutes() []*route {
	tags := []string{"machines"}
	graph := map[string]*huma.MediaType{"application/json": {Schema: s.registry().Schema(reflect.TypeFor[machines.Graph](), true, "")}}
	format := query("format", "mermaid (default), dot or json; the Accept header is the other way to say so", &huma.Schema{Type: huma.TypeString, Enum: []any{"mermaid", "dot", "json"}})
	drawn := map[string]*huma.MediaType{"text/vnd.mermaid": {Schema: text(1 << 20)}, "text/vnd.graphviz": {Schema: text(1 << 20)}}
	drawn["application/json"] = graph["application/json"]
	return []*route{
		{role: Read, serve: (*request).graphs, op: huma.Operation{
			OperationID: "list-machines", Method: http.MethodGet, Path: "/v1/machines", Tags: tags, Summary: "List the machines with their tables",
			Responses: map[string]*huma.Response{"200": {Description: "All machines", Content: s.bodyOf(reflect.TypeFor[MachineList]())}},
		}},
		{role: Read, serve: (*request).graph, op: huma.Operation{
			OperationID: "get-machine", Method: http.MethodGet, Path: "/v1/machines/{machine}", Tags: tags, Summary: "Read the table of one machine", Errors: []int{404},
			Parameters: []*huma.Param{machineParam()}, Responses: map[string]*huma.Response{"200": {Description: "The machine", Content: graph}},
		}},
		{role: Read, serve: (*request).diagram, op: huma.Operation{
			OperationID: "draw-machine", Method: http.MethodGet, Path: "/v1/machines/{machine}/diagram", Tags: tags, Summary: "Draw one machine", Errors: []int{404, 406},
			Parameters: []*huma.Param{machineParam(), format}, Responses: map[string]*huma.Response{"200": {Description: "The diagram", Content: drawn}},
		}},
		{role: Read, serve: (*request).counts, op: huma.Operation{
			OperationID: "count-machine", Method: http.MethodGet, Path: "/v1/machines/{machine}/counts", Tags: tags, Summary: "Count the entities of one machine by state", Errors: []int{404, 503, 504},
			Parameters: []*huma.Param{machineParam(), query("namespace", "The namespace; * is all. Default: all that the token may see", text(63)), query("minRevision", "Wait until this revision is counted, up to 5 s", number(0))},
			Responses:  map[string]*huma.Response{"200": {Description: "The counts", Headers: map[string]*huma.Param{headerStale: staleHeader()}, Content: s.bodyOf(reflect.TypeFor[Counts]())}},
		}},
	}
}

func machineParam() *huma.Param {
	return &huma.Param{Name: "machine", In: "path", Required: true, Example: "service", Schema: text(63)}
}

func (q *request) machine() (*machines.Machine, error) {
	for _, m := range q.o.Machines {
		if m.Name == q.path("machine") {
			return m, nil
		}
	}
	return nil, problem(machines.CodeNotFound, "there is no such machine")
}

func (q *request) graphs() error {
	list := MachineList{Items: []machines.Graph{}}
	for _, m := range q.o.Machines {
		list.Items = append(list.Items, m.Graph())
	}
	return q.json(http.StatusOK, list)
}

func (q *request) graph() error {
	m, err := q.machine()
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, m.Graph())
}

func (q *request) diagram() error {
	m, err := q.machine()
	if err != nil {
		return err
	}
	format := q.query.Get("format")
	if format == "" {
		if format = drawnAs(q.r.Header.Get("Accept")); format == "" {
			return problem(codeAcceptable, "a diagram is text/vnd.mermaid, text/vnd.graphviz or application/json")
		}
	}
	q.w.Header().Set("Vary", "Accept")
	switch format {
	case "dot":
		return q.text("text/vnd.graphviz; charset=utf-8", []byte(m.DOT()))
	case "json":
		return q.json(http.StatusOK, m.Graph())
	}
	return q.text("text/vnd.mermaid; charset=utf-8", []byte(m.Mermaid()))
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

func (q *request) counts() error {
	m, err := q.machine()
	if err != nil {
		return err
	}
	asked := q.query.Get("namespace")
	if asked == "" {
		asked = anyNamespace
	}
	ns, p := q.who.in(asked, true)
	if p != nil {
		return p
	}
	if ns == anyNamespace {
		ns = ""
	}
	if err := q.indexed(m.Name); err != nil {
		return err
	}
	if err := q.waitIndex(m); err != nil {
		return err
	}
	ix := q.o.Indexes[m.Name]
	out := Counts{Machine: m.Name, States: map[string]int{}, Revision: ix.Revision(), Stale: q.tellStale(m)}
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
	return q.json(http.StatusOK, out)
}
