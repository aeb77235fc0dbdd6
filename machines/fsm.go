package machines

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/looplab/fsm"
)

// What a state takes, and where an edge leads, is decided by looplab/fsm, from the rows of the table as they are written. It
// knows neither guards nor versions: which of the edges of an input is taken is decided by [Machine.Step] before it is asked
// where that edge leads.
//
// Each input is an event of its name there, which is never fired: it says which states take the input. Each edge is an event of
// its own, because looplab/fsm has one destination for an event and a source, and a second one silently wins.

// noneName stands for None inside looplab/fsm, which takes an empty state for an unset one.
const noneName = "(none)"

func stateName(s string) string {
	if s == None {
		return noneName
	}
	return s
}

func stateOf(name string) string {
	if name == noneName {
		return None
	}
	return name
}

func edgeEvent(on string, row int) string { return on + "#" + strconv.Itoa(row) }

func fsmEvents[D any](edges []Edge[D]) fsm.Events {
	var events fsm.Events
	for row, e := range edges {
		for _, from := range e.From {
			src, dst := stateName(from), stateName(e.To)
			if e.To == Same {
				dst = src
			}
			events = append(events,
				fsm.EventDesc{Name: e.On, Src: []string{src}, Dst: src},
				fsm.EventDesc{Name: edgeEvent(e.On, row), Src: []string{src}, Dst: dst})
		}
	}
	return events
}

// takes reports whether the state has an edge on the input. A guard may still refuse it.
func (m *Machine) takes(state, input string) bool {
	f := m.fsms.Get().(*fsm.FSM)
	defer m.fsms.Put(f)
	f.SetState(stateName(state))
	return f.Can(input)
}

// leads is the state to which the edge of a row leads from another one. A self-transition is legal, and looplab/fsm reports it as an
// error of its own type. The context is never cancelled: a cancelled one would wedge the instance.
func (m *Machine) leads(from, input string, row int) (string, error) {
	f := m.fsms.Get().(*fsm.FSM)
	defer m.fsms.Put(f)
	f.SetState(stateName(from))
	err := f.Event(context.Background(), edgeEvent(input, row))
	var same fsm.NoTransitionError
	if err != nil && (!errors.As(err, &same) || same.Err != nil) {
		return "", fmt.Errorf("machines: %s: %s while %s: %w", m.Name, input, from, err)
	}
	return stateOf(f.Current()), nil
}
