package entities

// One entity as clients see it. Load, LoadStored and Shown read the stored value (store.go) for routes of package api and
// for operations; Decode turns it into an Entity without the bookkeeping of the commit protocol, or fails if this program
// cannot read all of it. ItemOf makes what lists and watches show of an item of an index.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
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
	Revision   uint64            `json:"revision" doc:"Revision of the stored value, and the ETag"`
	Since      time.Time         `json:"since" doc:"Time at which the state was entered"`
	CreatedAt  time.Time         `json:"createdAt" doc:"Time at which the entity was created"`
	UpdatedAt  time.Time         `json:"updatedAt" doc:"Time of the last transition"`
	Labels     map[string]string `json:"labels,omitempty"`

	Data       json.RawMessage             `json:"data,omitempty" doc:"Data of the entity, as its machine defines it"`
	Conditions []machines.Condition        `json:"conditions,omitempty"`
	Timers     map[string]machines.Timer   `json:"timers,omitempty" doc:"Pending timers"`
	Effects    map[string]machines.Attempt `json:"effects,omitempty" doc:"Pending effects"`
	LastError  *machines.Failure           `json:"lastError,omitempty"`

	Dropped bool `json:"dropped,omitempty" doc:"The entity ended long ago, and its data was dropped; its events are kept"`

	AllowedCommands []string          `json:"allowedCommands" doc:"Commands allowed in this state; a guard may still refuse them"`
	Links           map[string]string `json:"links,omitempty" doc:"Related resources"`

	ForbiddenCommands map[string]string `json:"forbiddenCommands,omitempty" doc:"Those of allowedCommands that a guard refuses now if who reads it sends them, whatever their bodies say, each with what would be answered. Only of an entity that is read by itself, not in lists and watches"`
}

// ErrParked says that a stored value cannot be read.
var ErrParked = errors.New("a stored value cannot be read")

// Decode reads the public part of a stored value, or of what is left of one that was dropped. A value that this program cannot understand is an error, and never shown in part.
func (s *Store) Decode(m *machines.Machine, key string, from kv.Entry[json.RawMessage]) (*Entity, error) {
	value, err := m.Current(from.Value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParked, err)
	}
	var stored struct {
		Schema int `json:"schema"`
		Entity
	}
	if err := json.Unmarshal(value, &stored); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParked, err)
	}
	e := &stored.Entity
	_, known := m.State(e.State)
	if stored.Schema < 1 || stored.Schema > m.Schema() || e.Machine != m.Name || !known || machines.Key(e.Namespace, e.Parent, e.ID) != key {
		return nil, fmt.Errorf("%w: schema %d, machine %q, state %q, key %q", ErrParked, stored.Schema, e.Machine, e.State, machines.Key(e.Namespace, e.Parent, e.ID))
	}
	if e.Revision, e.Dropped = from.Revision, from.Dropped; e.Dropped {
		e.Data = nil
	}
	e.AllowedCommands = m.Allowed(e.State)
	e.Links = s.links(m, e)
	return e, nil
}

// links are where to go from an entity.
func (s *Store) links(m *machines.Machine, e *Entity) map[string]string {
	self := s.PathOf(m, e.Namespace, e.Parent, e.ID)
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

// EntitySchema is the schema of an entity of one machine in the document of a router, with the type of its data.
func EntitySchema(r *rest.Router, m *machines.Machine) *huma.Schema {
	reg := r.Registry()
	name := strings.ToUpper(m.Name[:1]) + m.Name[1:] + "Entity"
	ref := &huma.Schema{Ref: "#/components/schemas/" + name}
	if reg.Map()[name] != nil {
		return ref
	}
	general := reg.SchemaFromRef(reg.Schema(reflect.TypeFor[Entity](), true, "").Ref)
	special := *general
	special.Properties = maps.Clone(general.Properties)
	special.Properties["data"] = reg.Schema(reflect.TypeOf(m.New("", "", "").Data).Elem(), true, "")
	states := &huma.Schema{Type: huma.TypeString, Description: "State of the entity"}
	for _, st := range m.States {
		states.Enum = append(states.Enum, st.Name)
	}
	special.Properties["state"] = states
	special.Description = m.Doc
	reg.Map()[name] = &special
	return ref
}

// Load reads one entity from the leader of its bucket, in the turn of the client.
func (s *Store) Load(q *rest.Request, m *machines.Machine, key string) (*Entity, error) {
	e, _, err := s.LoadStored(q, m, key)
	return e, err
}

// LoadStored is [Store.Load] that returns the stored value as well.
func (s *Store) LoadStored(q *rest.Request, m *machines.Machine, key string) (e *Entity, stored kv.Entry[json.RawMessage], err error) {
	err = q.InTurn(func() (err error) {
		e, stored, err = s.Shown(q, m, key)
		return err
	})
	return e, stored, err
}

// Shown is [Store.LoadStored] for callers that have the turn of the client.
func (s *Store) Shown(q *rest.Request, m *machines.Machine, key string) (*Entity, kv.Entry[json.RawMessage], error) {
	stored, err := s.Stored(q.Context(), m, key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, stored, NotFound(m)
	}
	var corrupt *kv.CorruptError
	if err == nil {
		var e *Entity
		if e, err = s.Decode(m, key, stored); err == nil {
			return e, stored, nil
		}
	}
	if errors.As(err, &corrupt) || errors.Is(err, ErrParked) {
		s.rest.Log.Error("a stored value cannot be read", "request", q.Id, "machine", m.Name, "key", key, "error", err)
		err = problem.New(machines.CodeParked, "the stored value of this "+m.Name+" cannot be read by this version of the program")
	}
	return nil, stored, err
}

// NotFound is the problem of an entity that is not there, with the commands that begin one.
func NotFound(m *machines.Machine) *problem.Problem {
	p := problem.New(machines.CodeNotFound, "there is no such "+m.Name)
	p.AllowedCommands = m.Allowed(machines.None)
	return p
}

// Item is what lists show of an entity.
type Item struct {
	ID         string            `json:"id"`
	Namespace  string            `json:"namespace"`
	Parent     string            `json:"parent,omitempty"`
	State      string            `json:"state"`
	Version    uint64            `json:"version"`
	Generation uint64            `json:"generation"`
	Revision   uint64            `json:"revision"`
	Labels     map[string]string `json:"labels,omitempty"`
	Since      time.Time         `json:"since"`
	CreatedAt  time.Time         `json:"createdAt"`
	UpdatedAt  time.Time         `json:"updatedAt"`
	Problem    string            `json:"problem,omitempty" doc:"Why the value cannot be read; only id, namespace, parent, revision and updatedAt are set then"`
	Entity     *Entity           `json:"entity,omitempty" doc:"With include=data, the whole entity as of now, which may be newer than the item"`
}

// ItemOf is what lists show of an item of an index.
func ItemOf(it index.Item) Item {
	out := Item{
		State: it.State, Version: it.Version, Generation: it.Generation, Revision: it.Revision, Labels: it.Labels,
		Since: it.Since, CreatedAt: it.CreatedAt, UpdatedAt: it.UpdatedAt,
	}
	out.Namespace, out.Parent, out.ID, _ = streams.SplitKey(it.Key) // an invalid key is shown as an empty one
	if it.Problem != "" {
		out.Problem = "the stored value cannot be read"
	}
	return out
}
