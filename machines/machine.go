package machines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/strictjson"
)

// Machine is a checked lifecycle. It is immutable and safe for concurrent use.
type Machine struct {
	Name    string
	Plural  string
	Parent  string
	Doc     string
	States  []StateInfo
	Inputs  []Command
	Effects []EffectInfo
	Events  []EventType
	Edges   []EdgeInfo
	Columns []Column
	Views   []View

	upcasts []Upcast
	newData func() any
	step    func(*Machine, Entity, *Input) (Entity, Output, error)
	resume  func(*Machine, Entity) []Message
	inputs  map[string]*Command
	events  map[string]*EventType
	effects map[string]*EffectInfo
	states  map[string]*StateInfo
	rows    map[[2]string][]*EdgeInfo // by state and input, in the order of the table
	fsms    sync.Pool                 // of *fsm.FSM, see fsm.go
}

// StateInfo is a state as readers see it.
type StateInfo struct {
	Name         string `json:"name"`
	Doc          string `json:"doc,omitempty"`
	Transitional bool   `json:"transitional"`
	Terminal     bool   `json:"terminal"`
	Failed       bool   `json:"failed"`
	Deadline     string `json:"deadline,omitempty"` // the input that follows its timeout
	Poll         *Poll  `json:"poll,omitempty"`
}

// EffectInfo is an effect as readers and workers see it.
type EffectInfo struct {
	Name    string        `json:"name"`
	Doc     string        `json:"doc,omitempty"`
	Done    string        `json:"done"`
	Failed  string        `json:"failed"`
	Retry   Retry         `json:"retry"`
	Timeout time.Duration `json:"timeout"`
	Task    any           `json:"-"` // a value of the type of the data of its tasks, or nil

	Routed   bool `json:"routed,omitempty"`   // some of its tasks have a queue of their own, by their data
	Parallel int  `json:"parallel,omitempty"` // tasks at a time; 0 is what the workers are told

	looks bool
}

// EdgeInfo is one edge as readers see it: one per state that it leaves.
type EdgeInfo struct {
	From    string   `json:"from"` // empty for an entity that does not exist
	On      string   `json:"on"`
	If      string   `json:"if,omitempty"`
	Doc     string   `json:"doc,omitempty"` // of the guard
	To      string   `json:"to"`
	Emit    []string `json:"emit,omitempty"`
	Effects []string `json:"effects,omitempty"`
	Noop    bool     `json:"noop,omitempty"`

	row int // in Definition.Edges
}

// State returns a state by its name.
func (m *Machine) State(name string) (StateInfo, bool) { return named(m.states, name) }

// Input returns a command or report by its name.
func (m *Machine) Input(name string) (Command, bool) { return named(m.inputs, name) }

// Event returns an event type by its name, the engine's own ones included.
func (m *Machine) Event(name string) (EventType, bool) { return named(m.events, name) }

// Effect returns an effect by its name.
func (m *Machine) Effect(name string) (EffectInfo, bool) { return named(m.effects, name) }

func named[T any](all map[string]*T, name string) (one T, ok bool) {
	if p := all[name]; p != nil {
		return *p, true
	}
	return one, false
}

// Selected are the members of the data that lists select by, as the columns say.
func (m *Machine) Selected() (members []string) {
	for _, c := range m.Columns {
		if c.Selects {
			members = append(members, strings.TrimPrefix(c.Path, "data."))
		}
	}
	return members
}

// BucketOf is the name of the bucket of a view, <plural>_<view>, before the prefix of the installation.
func (m *Machine) BucketOf(v View) string { return m.Plural + "_" + v.Name }

// Commands are the inputs that users may send.
func (m *Machine) Commands() []Command {
	return slices.DeleteFunc(slices.Clone(m.Inputs), func(c Command) bool { return c.Report })
}

// Allowed lists the commands of users that have an edge from the state, in the order of the table. A guard may still
// refuse one of them.
func (m *Machine) Allowed(state string) []string {
	allowed := []string{}
	for _, c := range m.Inputs {
		if !c.Report && m.takes(state, c.Name) {
			allowed = append(allowed, c.Name)
		}
	}
	return allowed
}

// New is the entity that does not exist yet: in the state [None], version 0, with zero data. Parent is empty for a machine
// that declares none. Names are not checked here, see [IsLabel].
func (m *Machine) New(namespace, parent, id string) Entity {
	return Entity{Schema: m.Schema(), Machine: m.Name, Namespace: namespace, Parent: parent, ID: id, Data: m.newData()}
}

// Decode reads a stored entity with its data, also one of an earlier schema. What it does not know is written again with it, but for
// members of items of lists. It refuses a value of a newer schema, of another machine, of a state that the table does not have, and of
// timers and messages under names that no table can have: no stream would take them.
func (m *Machine) Decode(value []byte) (Entity, error) {
	value, err := m.Current(value)
	if err != nil {
		return Entity{}, err
	}
	e, err := m.decode(value)
	if err != nil {
		return Entity{}, fmt.Errorf("machines: cannot read a stored %s: %w", m.Name, err)
	}
	if e.Data == nil {
		e.Data = m.newData()
	}
	if err := m.checkSchema(e.Schema, e.Key()); err != nil {
		return Entity{}, err
	}
	if e.Machine != m.Name {
		return Entity{}, fmt.Errorf("machines: stored value is a %q, not a %s", e.Machine, m.Name)
	}
	if _, ok := m.states[e.State]; !ok {
		return Entity{}, fmt.Errorf("machines: stored %s %s is in state %q, which the table does not have", m.Name, e.Key(), e.State)
	}
	if max(e.Version, e.Generation) > maxVersion {
		return Entity{}, fmt.Errorf("machines: stored %s %s has version %d and generation %d: no entity comes so far", m.Name, e.Key(), e.Version, e.Generation)
	}
	if err := e.checkNames(); err != nil {
		return Entity{}, fmt.Errorf("machines: stored %s %s has %w", m.Name, e.Key(), err)
	}
	return e, nil
}

// DecodeAt is [Machine.Decode] for the value under a key, and refuses that of another entity.
func (m *Machine) DecodeAt(key string, value []byte) (Entity, error) {
	e, err := m.Decode(value)
	if err == nil && e.Key() != key {
		err = fmt.Errorf("machines: the value under %s says that it is %s", key, e.Key())
	}
	return e, err
}

// maxVersion is what a number in JSON says exactly (RFC 8259, 6), and up to what versions are read from ids.
const maxVersion = 1<<53 - 1

// decode keeps what this version does not know.
func (m *Machine) decode(value []byte) (Entity, error) {
	e := Entity{Data: m.newData()}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if dec.Decode(&e) == nil && dec.InputOffset() == int64(len(value)) {
		return e, nil
	}
	e = Entity{Data: m.newData()}
	if err := json.Unmarshal(value, &e); err != nil {
		return e, err
	}
	e.rest = ofEntity(strictjson.UnknownOf(value, reflect.TypeFor[Entity](), reflect.TypeOf(m.newData())))
	return e, nil
}

// DecodeBody reads and checks the body of an input. Unknown fields and wrong types are refused.
func (m *Machine) DecodeBody(input string, body []byte) (any, *Refusal) {
	c, ok := m.inputs[input]
	if !ok {
		return nil, &Refusal{Code: CodeNotFound, Message: fmt.Sprintf("%s has no command %q", m.Name, input)}
	}
	return decodeBody(c, body)
}

// NewBody returns a pointer to an empty body of the input, or nil when it has none.
func (c *Command) NewBody() any {
	if c.Body == nil {
		return nil
	}
	return reflect.New(reflect.TypeOf(c.Body)).Interface()
}
