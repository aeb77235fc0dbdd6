package machines

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// resumer closes over the typed table as stepper does.
func resumer[D any](d *Definition[D]) func(*Machine, Entity) []Message {
	effects := byName(d.Effects, func(e *Effect[D]) string { return e.Name })
	return func(m *Machine, e Entity) []Message {
		data := *e.Data.(*D)
		s := &stepping[D]{m: m, def: d, effects: effects, before: e, next: e, in: &Input{Time: e.UpdatedAt}}
		s.out = Output{From: e.State, To: e.State}
		s.tx = &Tx[D]{Data: &data, In: s.in, entity: &s.next, out: &s.out, detail: map[string]any{}}
		for _, name := range slices.Sorted(maps.Keys(e.Effects)) {
			if _, known := m.effects[name]; known && e.Effects[name].NextTry == nil {
				body, route := s.task(name)
				if s.tx.failed != nil { // the deadline of the state ends it
					s.tx.failed = nil
					continue
				}
				s.out.Messages = append(s.out.Messages, Message{Kind: KindEffect, Name: name, Version: e.Version, N: len(s.out.Messages), At: e.UpdatedAt, Body: body, Route: route})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(e.Timers)) {
			s.out.Messages = append(s.out.Messages, e.Timers[name].message(name))
		}
		return s.out.Messages
	}
}

// message is the schedule of the timer.
func (t Timer) message(name string) Message {
	body, _ := json.Marshal(Elapsed{Timer: name, Armed: t.Armed}) // a string and a number
	return Message{Kind: KindTimer, Name: name, Version: t.Armed, At: t.At, Body: body}
}

// Pending is what the entity waits for, as the messages that were published for it once: its effects under way, under
// their attempts, and its timers. An effect carries the data of now; its id is that of a message of its own only with another time than
// that of the last transition.
func (m *Machine) Pending(e Entity) []Message { return m.resume(m, e) }

// Repair is the body of the command that gives a parked entity another value.
type Repair struct {
	Revision uint64          `json:"revision" minimum:"1" doc:"Revision of the stored value to replace"`
	Value    json.RawMessage `json:"value" doc:"The new stored value, complete"`
}

// Reconciled is the entity after its streams were found not to belong to its value: at a version above all that its
// events have, so that none is given out twice, with the event that says so. What is under way goes on above the fences that its provider has seen.
func (m *Machine) Reconciled(e Entity, above uint64, in Input, data any) (Entity, Message, error) {
	e.Version, e.Replaced = max(e.Version, above)+1, 0
	e.UpdatedAt, e.Effects = in.Time, maps.Clone(e.Effects)
	for name, a := range e.Effects {
		a.Fence = e.Version
		e.Effects[name] = a
	}
	event := Event{
		From: e.State, To: e.State, Version: e.Version, Generation: e.Generation, Time: in.Time, Command: in.Command, CommandID: in.ID, Actor: cmp.Or(in.Actor, "engine"), Reason: in.Reason, Data: data,
	}
	body, err := event.AppendJSON(nil)
	if err != nil {
		return e, Message{}, fmt.Errorf("machines: cannot write event %s: %w", EventReconciled, err)
	}
	return e, Message{Kind: KindEvent, Name: EventReconciled, Version: e.Version, At: in.Time, Body: body}, nil
}
