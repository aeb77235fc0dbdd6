package entities

import (
	"errors"
	"time"

	"github.com/bcc94042/instar/machines"
)

// forbidden are the commands of users that the state of an entity takes and a guard refuses now nevertheless, whatever their bodies say, each with what would be answered; nil where there are none.
func forbidden(m *machines.Machine, e machines.Entity) map[string]string {
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
		if why := refused(m, e, name); why != "" {
			if all == nil {
				all = map[string]string{}
			}
			all[name] = why
		}
	}
	return all
}

// refused is what a guard answers to a command that has no body yet; nothing where it is taken, or where that depends on the body: who looks at it panics.
func refused(m *machines.Machine, e machines.Entity, name string) (why string) {
	defer func() {
		if recover() != nil {
			why = ""
		}
	}()
	_, _, err := m.Step(e, machines.Input{Command: name, Time: time.Now().UTC(), Unsent: true})
	var r *machines.Refusal
	if errors.As(err, &r) && r.Code == machines.CodeGuard {
		return r.Message
	}
	return ""
}
