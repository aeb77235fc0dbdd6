// Package seen is what was seen of one entity in a simulated installation: its values, its events, and what clients were told of it; and what holds of these by themselves, whatever else
// there is. Who reads the streams adds to an [Entity], and holds each value and event against it before.
package seen

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/bcc94042/instar/internal/simulation/operator"
	"github.com/bcc94042/instar/machines"
)

// Entity is what was seen of one.
type Entity struct {
	Machine   *machines.Machine
	Key       string
	Values    []Value
	Events    []Event
	IDs       map[string]bool // of events
	Published uint64          // the last version whose event was seen
	Bases     []uint64        // versions that need not follow the one before: the first one, and those of restores

	Highest, Above uint64 // versions: of all values, and of those before the last restore
	Torn           bool   // a restore has taken back what became of it

	Dropped bool // its value was dropped once
	Purged  bool // its events were taken out on purpose, which is told as little as that they have expired
}

// New is an entity of which nothing was seen, and whose first version is the one of a number, or 1.
func New(m *machines.Machine, key string, first uint64) *Entity {
	return &Entity{Machine: m, Key: key, IDs: map[string]bool{}, Bases: []uint64{first}}
}

func (x *Entity) String() string { return x.Machine.Name + " " + x.Key }

// Value is a stored value of an entity.
type Value struct {
	Seq        uint64                      `json:"-"` // its revision
	Dropped    bool                        `json:"-"` // it is what is left of one that was dropped
	State      string                      `json:"state"`
	Version    uint64                      `json:"version"`
	Generation uint64                      `json:"generation"`
	Mark       uint64                      `json:"mark"`
	Timers     map[string]machines.Timer   `json:"timers"`
	Effects    map[string]machines.Attempt `json:"effects"`
	Data       json.RawMessage             `json:"data"`
}

// Event is one event of an entity.
type Event struct {
	Seq        uint64          `json:"-"`
	EventID    string          `json:"-"`
	Type       string          `json:"-"`
	N          uint64          `json:"-"` // its place among the messages of its version
	Numbered   bool            `json:"-"` // it belongs to a version, and is no refusal
	From       string          `json:"from"`
	To         string          `json:"to"`
	Version    uint64          `json:"version"`
	Generation uint64          `json:"generation"`
	Command    string          `json:"command"`
	ID         string          `json:"commandId"`
	Actor      string          `json:"actor"`
	Attempt    string          `json:"-"` // of the result that it is of
	Sent       [2]uint64       `json:"-"` // the first and the last place in the stream of commands of that which it is of; 0 where that was not seen
	Body       []byte          `json:"-"` // all of it
	Data       json.RawMessage `json:"data"`
}

// MadeUp reports whether an event is of a report that somebody else than the program has sent.
func (x *Entity) MadeUp(ev Event) bool {
	in, ok := x.Machine.Input(ev.Command)
	return ok && in.Report && ev.Attempt == "" && strings.HasPrefix(ev.Actor, "client-")
}

// Last is the value that is stored now, or nil.
func (x *Entity) Last() *Value {
	if len(x.Values) == 0 {
		return nil
	}
	return &x.Values[len(x.Values)-1]
}

// Base is the version from which on all events of an entity are there behind those of the last backup that was restored.
func (x *Entity) Base() uint64 { return x.Bases[len(x.Bases)-1] }

// Has reports whether an event of a version was seen, and notes it.
func (x *Entity) Has(version uint64) bool {
	for i := len(x.Events) - 1; i >= 0; i-- {
		if x.Events[i].Numbered && x.Events[i].Version == version {
			x.Published = version
			return true
		}
	}
	return false
}

// lastNumbered is the last event that belongs to a version, or nil.
func (x *Entity) lastNumbered() *Event {
	for i := len(x.Events) - 1; i >= 0; i-- {
		if x.Events[i].Numbered {
			return &x.Events[i]
		}
	}
	return nil
}

// Forget lets everything be read again.
func (x *Entity) Forget() {
	x.Values, x.Events, x.Published = nil, nil, 0
	clear(x.IDs)
}

// Rises: versions rise.
func Rises(x *Entity, v *Value) string {
	if v.Version <= x.Above {
		return fmt.Sprintf("version %d at revision %d, and %d was given out before the restore", v.Version, v.Seq, x.Above)
	}
	if last := x.Last(); last != nil && v.Version < last.Version {
		return fmt.Sprintf("version %d at revision %d after %d at %d", v.Version, v.Seq, last.Version, last.Seq)
	}
	return ""
}

// AsSent: commands are taken in the order in which their stream has them.
func AsSent(x *Entity, ev *Event) string {
	if !ev.Numbered || ev.Sent[1] == 0 {
		return ""
	}
	for _, before := range slices.Backward(x.Events) {
		switch {
		case !before.Numbered || before.Sent[0] == 0:
			continue
		case before.Sent[0] > ev.Sent[1]:
			return fmt.Sprintf("event %s is of command %d, and %s before it of command %d", ev.EventID, ev.Sent[1], before.EventID, before.Sent[0])
		}
		return ""
	}
	return ""
}

// Ended: what has ended waits for nothing that is done outside.
func Ended(x *Entity, v *Value) string {
	if s, ok := x.Machine.State(v.State); ok && s.Terminal && len(v.Effects) > 0 {
		return fmt.Sprintf("revision %d is %s, and waits for %v", v.Seq, v.State, v.Effects)
	}
	return ""
}

// View is what a view has to be of the events of an entity: all of its types, each once, in their order. Nothing is that there are none.
func View(x *Entity, v *machines.View) (value json.RawMessage, events int) {
	for _, ev := range x.Events {
		if !slices.Contains(v.Events, ev.Type) {
			continue
		}
		events++
		var data json.RawMessage
		body := machines.Event{Data: &data}
		if json.Unmarshal(ev.Body, &body) != nil {
			continue
		}
		body.Data = nil
		next, err := v.Project(value, ev.Type, body, data)
		if err != nil || next == nil {
			continue
		}
		value, _ = json.Marshal(next)
	}
	return value, events
}

// AppliedOnce: a command makes one version.
func AppliedOnce(x *Entity, ev *Event) string {
	for _, before := range x.Events {
		if ev.Numbered && before.Numbered && ev.ID != "" && before.ID == ev.ID && before.Version != ev.Version && ev.Command == before.Command && ev.Type != machines.EventReconciled {
			return fmt.Sprintf("command %s %s made version %d, and now %d", ev.Command, ev.ID, before.Version, ev.Version)
		}
	}
	return ""
}

// InOrder: events come once, in the order of the versions, and of versions that exist.
func InOrder(x *Entity, ev *Event) string {
	if x.IDs[ev.EventID] {
		return fmt.Sprintf("event %s is stored twice", ev.EventID)
	}
	if v := x.Last(); ev.Numbered && (v == nil || v.Version < ev.Version) {
		return fmt.Sprintf("event %s is of a version that no value has", ev.EventID)
	}
	before := x.lastNumbered()
	from, restored := operator.RestoredFrom(ev.Type, ev.Data)
	switch {
	case !ev.Numbered:
	case before == nil && (ev.N != 0 || ev.Version != 1 && !slices.Contains(x.Bases, ev.Version)):
		return fmt.Sprintf("the first event is %s", ev.EventID)
	case before != nil && restored && from != before.Version:
		return fmt.Sprintf("event %s says that version %d was restored, and follows %s", ev.EventID, from, before.EventID)
	case before != nil && ev.Version != before.Version && ev.Version != before.Version+1 && !slices.Contains(x.Bases, ev.Version), before != nil && ev.Version == before.Version && ev.N != before.N+1, before != nil && ev.Version != before.Version && ev.N != 0:
		return fmt.Sprintf("event %s follows %s", ev.EventID, before.EventID)
	}
	return ""
}

// Lawful: transitions are along edges of the table. It compares with the edges as the table lists them, not with what the program has compiled from them.
func Lawful(x *Entity, ev *Event) string {
	if !ev.Numbered || ev.Type == machines.EventReconciled {
		return ""
	}
	if before := x.lastNumbered(); before != nil && before.Version != ev.Version && before.To != ev.From {
		return fmt.Sprintf("version %d leads from %q, the one before to %q", ev.Version, ev.From, before.To)
	}
	engine := ev.Command == machines.CommandElapsed || ev.Command == machines.CommandFailed
	if engine && ev.From == ev.To || ev.Type == machines.EventDead {
		return ""
	}
	for _, e := range x.Machine.Edges {
		if e.From == ev.From && (e.To == ev.To || e.To == machines.Same && ev.From == ev.To) && (e.On == ev.Command || engine) && !e.Noop {
			return ""
		}
	}
	return fmt.Sprintf("%s leads from %q to %q, which no edge does", ev.Command, ev.From, ev.To)
}

// Summed: what is added to a thing is summed up.
func Summed(x *Entity, ev *Event) string {
	if ev.Type != "thing.added" || ev.Command != "add" {
		return ""
	}
	var now, before struct{ N, Sum int }
	_ = json.Unmarshal(ev.Data, &now)
	for _, e := range x.Events {
		switch e.Type {
		case "thing.created":
			before.Sum = 0
		case "thing.added":
			_ = json.Unmarshal(e.Data, &before)
		}
	}
	if now.Sum != before.Sum+now.N {
		return fmt.Sprintf("%d and %d is %d in %s", before.Sum, now.N, now.Sum, ev.EventID)
	}
	return ""
}

// Attributed: an event says who asked. The ids of clients begin with their names.
func Attributed(_ *Entity, ev *Event) string {
	id := strings.TrimPrefix(ev.ID, "~")
	if !strings.HasPrefix(id, "client-") || ev.Type == machines.EventReconciled {
		return ""
	}
	if who := id[:strings.LastIndexByte(id, '-')]; ev.Actor != who {
		return fmt.Sprintf("event %s of command %s names the actor %q", ev.EventID, ev.ID, ev.Actor)
	}
	return ""
}

// Awaited: a result is taken of the attempt that is waited for. It looks at what an entity waited for before a result was taken: its attempt.
func Awaited(x *Entity, ev *Event) string {
	of := func(fx machines.EffectInfo) bool {
		return ev.Command == fx.Done || ev.Command == fx.Failed || ev.Command == machines.CommandFailed
	}
	if ev.Attempt == "" || !ev.Numbered || ev.Type == machines.EventDead || !slices.ContainsFunc(x.Machine.Effects, of) { // a table may want to know of results that are too late
		return ""
	}
	for i := len(x.Values) - 1; i >= 0; i-- {
		v := &x.Values[i]
		if v.Version >= ev.Version {
			continue
		}
		if v.Version < ev.Version-1 {
			break // several were written at once
		}
		for _, a := range v.Effects {
			if a.ID == ev.Attempt {
				return ""
			}
		}
		return fmt.Sprintf("event %s is of a result of attempt %s, and the entity waited for %v", ev.EventID, ev.Attempt, v.Effects)
	}
	return ""
}
