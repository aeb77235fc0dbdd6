package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
)

// Entity is what everybody may see of an entity: all but the bookkeeping of the commit protocol.
type Entity struct {
	Machine    string            `json:"machine"`
	Namespace  string            `json:"namespace"`
	ID         string            `json:"id"`
	Parent     string            `json:"parent,omitempty"`
	State      string            `json:"state"`
	Version    uint64            `json:"version" doc:"Rises by one with every transition"`
	Generation uint64            `json:"generation" doc:"Rises with every accepted specification"`
	Revision   uint64            `json:"revision" doc:"Of the value in the bucket; also the ETag"`
	Since      time.Time         `json:"since" doc:"When the state was entered"`
	CreatedAt  time.Time         `json:"createdAt" doc:"When this life began"`
	UpdatedAt  time.Time         `json:"updatedAt" doc:"When the last transition happened"`
	Labels     map[string]string `json:"labels,omitempty"`

	Data       json.RawMessage             `json:"data,omitempty" doc:"What the machine keeps of it"`
	Conditions []machines.Condition        `json:"conditions,omitempty"`
	Timers     map[string]machines.Timer   `json:"timers,omitempty" doc:"What happens by itself, and when"`
	Effects    map[string]machines.Attempt `json:"effects,omitempty" doc:"What is being done for it now"`
	LastError  *machines.Failure           `json:"lastError,omitempty"`

	AllowedCommands []string          `json:"allowedCommands" doc:"What it would take now, unless a guard refuses it"`
	Links           map[string]string `json:"links,omitempty" doc:"Where to go from here"`
}

// errParked says that a stored value cannot be shown.
var errParked = errors.New("a stored value cannot be read")

// decode reads the public part of a stored value. What this program cannot understand is not shown by halves.
func (s *Server) decode(m *machines.Machine, key string, value []byte, revision uint64) (*Entity, error) {
	value, err := m.Current(value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errParked, err)
	}
	var stored struct {
		Schema int `json:"schema"`
		Entity
	}
	if err := json.Unmarshal(value, &stored); err != nil {
		return nil, fmt.Errorf("%w: %w", errParked, err)
	}
	e := &stored.Entity
	_, known := m.State(e.State)
	if stored.Schema < 1 || stored.Schema > m.Schema() || e.Machine != m.Name || !known || machines.Key(e.Namespace, e.Parent, e.ID) != key {
		return nil, fmt.Errorf("%w: schema %d, machine %q, state %q, key %q", errParked, stored.Schema, e.Machine, e.State, machines.Key(e.Namespace, e.Parent, e.ID))
	}
	e.Revision = revision
	e.AllowedCommands = m.Allowed(e.State)
	e.Links = s.links(m, e)
	return e, nil
}

// links are where to go from an entity.
func (s *Server) links(m *machines.Machine, e *Entity) map[string]string {
	self := s.pathOf(m, e.Namespace, e.Parent, e.ID)
	path, query, _ := strings.Cut(self, "?")
	at := func(sub string) string {
		if query != "" {
			return path + "/" + sub + "?" + query
		}
		return path + "/" + sub
	}
	links := map[string]string{"self": self, "events": at("events"), "watch": at("watch")}
	for _, v := range m.Views {
		links[v.Name] = at(v.Name)
	}
	return links
}

// entitySchema is the schema of an entity of one machine, with the type of its data.
func (s *Server) entitySchema(m *machines.Machine) *huma.Schema {
	reg := s.registry()
	name := strings.ToUpper(m.Name[:1]) + m.Name[1:] + "Entity"
	ref := &huma.Schema{Ref: "#/components/schemas/" + name}
	if reg.Map()[name] != nil {
		return ref
	}
	general := reg.SchemaFromRef(reg.Schema(reflect.TypeFor[Entity](), true, "").Ref)
	special := *general
	special.Properties = maps.Clone(general.Properties)
	special.Properties["data"] = reg.Schema(reflect.TypeOf(m.New("", "", "").Data).Elem(), true, "")
	states := &huma.Schema{Type: huma.TypeString, Description: "The stage that it is in"}
	for _, st := range m.States {
		states.Enum = append(states.Enum, st.Name)
	}
	special.Properties["state"] = states
	special.Description = m.Doc
	reg.Map()[name] = &special
	return ref
}

// entityRoute reads one entity.
func (s *Server) entityRoute(m *machines.Machine, base string) *route {
	return &route{role: Read, serve: func(q *request) error { return q.entity(m) }, op: huma.Operation{
		OperationID: "get-" + m.Name, Method: http.MethodGet, Path: base + "/{id}", Tags: []string{m.Name},
		Summary: "Read one " + m.Name, Description: "Reads from the leader of the bucket: every write acknowledged before is in the answer.",
		Errors: []int{404, 409, 422, 503, 504},
		Parameters: []*huma.Param{
			namespaceParam(), query("minRevision", "Wait until the index has this revision as well, up to 5 s", number(0)),
			header("If-None-Match", "Answer 304 when the entity is still at this ETag", `"42"`),
		},
		Responses: map[string]*huma.Response{
			"200": {Description: "The entity", Headers: map[string]*huma.Param{"ETag": {Schema: text(32)}}, Content: map[string]*huma.MediaType{"application/json": {Schema: s.entitySchema(m)}}},
			"304": {Description: "The entity is still at the ETag"},
		},
	}}
}

func (q *request) entity(m *machines.Machine) error {
	_, key, err := q.key(m)
	if err != nil {
		return err
	}
	if err := q.waitIndex(m); err != nil {
		return err
	}
	e, err := q.load(m, key)
	if err != nil {
		return err
	}
	q.w.Header()["Etag"] = []string{etag(e.Revision)}
	if unchanged(q.r, strconv.FormatUint(e.Revision, 10)) {
		q.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return q.json(http.StatusOK, e)
}

// load reads one entity from the leader of its bucket.
func (q *request) load(m *machines.Machine, key string) (*Entity, error) {
	e, _, err := q.loadStored(m, key)
	return e, err
}

// loadStored is load that gives the stored value as well.
func (q *request) loadStored(m *machines.Machine, key string) (*Entity, kv.Entry[json.RawMessage], error) {
	stored, err := q.buckets[m.Name].Get(q.ctx(), key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, stored, notFound(m)
	}
	var corrupt *kv.CorruptError
	if err == nil {
		var e *Entity
		if e, err = q.decode(m, key, stored.Value, stored.Revision); err == nil {
			return e, stored, nil
		}
	}
	if errors.As(err, &corrupt) || errors.Is(err, errParked) {
		q.o.Log.Error("a stored value cannot be shown", "request", q.id, "machine", m.Name, "key", key, "error", err)
		err = problem(machines.CodeParked, "the stored value of this "+m.Name+" cannot be read by this version of the program")
	}
	return nil, stored, err
}

func notFound(m *machines.Machine) *Problem {
	p := problem(machines.CodeNotFound, "there is no such "+m.Name)
	p.AllowedCommands = m.Allowed(machines.None)
	return p
}

// viewRoute reads one read model of one entity.
func (s *Server) viewRoute(m *machines.Machine, v machines.View, base string) *route {
	return &route{role: Read, serve: func(q *request) error { return q.view(m, v) }, op: huma.Operation{
		OperationID: "get-" + m.Name + "-" + v.Name, Method: http.MethodGet, Path: base + "/{id}/" + v.Name, Tags: []string{m.Name},
		Summary: "Read the view " + v.Name + " of one " + m.Name, Description: v.Doc + " It is built from " + strings.Join(v.Events, ", ") + ".",
		Errors: []int{404, 409, 422, 503}, Parameters: []*huma.Param{namespaceParam(), header("If-None-Match", "Answer 304 when the view is still at this ETag", `"42"`)},
		Responses: map[string]*huma.Response{
			"200": {Description: "The view; a list is under items", Headers: map[string]*huma.Param{"ETag": {Schema: text(32)}}, Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}}}},
			"304": {Description: "The view is still at the ETag"},
		},
	}}
}

func (q *request) view(m *machines.Machine, v machines.View) error {
	_, key, err := q.key(m)
	if err != nil {
		return err
	}
	stored, err := q.views[m.BucketOf(v)].Get(q.ctx(), key)
	switch {
	case errors.Is(err, kv.ErrNotFound):
		if _, err := q.buckets[m.Name].Get(q.ctx(), key); errors.Is(err, kv.ErrNotFound) {
			return notFound(m)
		}
		return problem(machines.CodeNotFound, "nothing has happened yet that this view is made of")
	case errors.Is(err, kv.ErrCorrupt):
		return problem(machines.CodeParked, "the stored view cannot be read")
	case err != nil:
		return err
	}
	q.w.Header()["Etag"] = []string{etag(stored.Revision)}
	if unchanged(q.r, strconv.FormatUint(stored.Revision, 10)) {
		q.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	var folded machines.Folded
	if err := json.Unmarshal(stored.Value, &folded); err != nil || len(folded.Value) == 0 {
		return problem(machines.CodeParked, "the stored view cannot be read")
	}
	switch folded.Value[0] {
	case '{':
		return q.json(http.StatusOK, folded.Value)
	case '[':
		return q.json(http.StatusOK, map[string]json.RawMessage{"items": folded.Value})
	}
	return q.json(http.StatusOK, map[string]json.RawMessage{"value": folded.Value})
}

// values splits parameters that are lists: repeated, or with commas.
func values(all []string) []string {
	var list []string
	for _, v := range all {
		for _, one := range strings.Split(v, ",") {
			if one = strings.TrimSpace(one); one != "" && !slices.Contains(list, one) {
				list = append(list, one)
			}
		}
	}
	return list
}
