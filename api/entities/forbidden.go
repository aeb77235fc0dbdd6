package entities

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
)

// Forbid says of an entity that is read by itself which commands of who asks are forbidden now; stored is the value that it was read from.
func (e *Entity) Forbid(m *machines.Machine, stored kv.Entry[json.RawMessage], actor string) {
	if e.Dropped {
		return
	}
	if whole, err := m.Decode(stored.Value); err == nil { // else nobody knows before a command comes
		e.ForbiddenCommands = forbidden(m, whole, actor)
	}
}

// forbidden are the commands that the state of an entity takes and a guard refuses now nevertheless, whatever their bodies and reasons say, if they come from this actor, each with what would be answered; nil where there are none.
func forbidden(m *machines.Machine, e machines.Entity, actor string) map[string]string {
	guarded := map[string]bool{} // whether each edge of the command has a guard
	for _, edge := range m.Edges {
		if edge.From == e.State {
			before, seen := guarded[edge.On]
			guarded[edge.On] = edge.If != "" && (before || !seen)
		}
	}
	var all map[string]string
	for _, name := range m.Allowed(e.State) {
		if !guarded[name] {
			continue
		}
		if why := refused(m, e, name, actor); why != "" {
			if all == nil {
				all = map[string]string{}
			}
			all[name] = why
		}
	}
	return all
}

// refused is what a guard answers to a command that has no body and no reason yet; nothing where it is taken, where it would be with a reason, or where that depends on the body: who looks at it panics.
func refused(m *machines.Machine, e machines.Entity, name, actor string) (why string) {
	defer func() {
		if recover() != nil {
			why = ""
		}
	}()
	in := machines.Input{Command: name, Time: time.Now().UTC(), Actor: actor, Unsent: true}
	for _, in.Reason = range []string{"not known yet", ""} {
		_, _, err := m.Step(e, in)
		var r *machines.Refusal
		if !errors.As(err, &r) || r.Code != machines.CodeGuard {
			return ""
		}
		why = r.Message
	}
	return why
}
