package machines

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/looplab/fsm"
)

var (
	dotted = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	token  = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
)

// Define checks a lifecycle and makes it runnable. It panics with the reason when the table is broken: a wrong name,
// an undefined state, input, event or effect, a state that cannot be reached or left, an edge hidden by an unguarded
// one before it, a timeout without an edge, a column that selects by what is no text.
func Define[D any](d Definition[D]) *Machine {
	if err := check(&d); err != nil {
		panic(fmt.Sprintf("machines: %s: %v", d.Name, err))
	}
	m := &Machine{
		Name: d.Name, Plural: d.Plural, Parent: d.Parent, Doc: d.Doc, Inputs: d.Inputs, Columns: d.Columns, Views: d.Views,
		upcasts: d.Upcasts,
		newData: func() any { return new(D) },
	}
	for _, s := range d.States {
		info := StateInfo{Name: s.Name, Doc: s.Doc, Terminal: s.Terminal, Failed: s.Failed, Poll: s.Poll, Transitional: s.Transitional || s.Timeout != nil}
		if s.Timeout != nil {
			info.Deadline = s.Timeout.Input
		}
		m.States = append(m.States, info)
	}
	for _, e := range d.Effects {
		m.Effects = append(m.Effects, EffectInfo{Name: e.Name, Doc: e.Doc, Done: e.Done, Failed: e.Failed, Retry: e.Retry.withDefaults(), Timeout: cmp.Or(e.Timeout, time.Minute), Task: e.Task, Routed: e.Route != nil, Parallel: e.Parallel, looks: e.Looks})
	}
	m.Events = append(slices.Clone(d.Events),
		EventType{Name: EventRefused, Class: ClassError, Doc: "A command was refused; nothing changed."},
		EventType{Name: EventDead, Class: ClassError, Doc: "A command could not be processed; it is in DEAD_LETTERS."},
		EventType{Name: EventRetrying, Class: ClassProgress, Doc: "An attempt of an effect failed; the next one is scheduled."},
		EventType{Name: EventRetried, Class: ClassProgress, Doc: "The next attempt of an effect was started."},
		EventType{Name: EventReconciled, Class: ClassError, Doc: "The stored value and its events were inconsistent; data says what was lost."})
	m.Edges = flatten(d.Edges)
	m.index()
	m.step, m.resume = stepper(&d), resumer(&d)
	m.fsms.New = func() any { return fsm.NewFSM(noneName, fsmEvents(d.Edges), nil) }
	return m
}

// Described completes a machine of which only the exported fields are known, as of one that another program runs: it answers
// every question about its table. It takes no input: Step fails, and values are read as plain JSON.
func Described(m *Machine) *Machine {
	m.newData = func() any { return new(map[string]any) }
	m.step = func(m *Machine, e Entity, _ *Input) (Entity, Output, error) {
		return e, Output{}, fmt.Errorf("machines: %s is only described here, and takes no input", m.Name)
	}
	m.resume = func(*Machine, Entity) []Message { return nil }
	m.index()
	return m
}

func (m *Machine) index() {
	for i := range m.Events {
		if m.Events[i].Subject == "" {
			m.Events[i].Subject = m.Events[i].Name
		}
	}
	m.states = byName(m.States, func(s *StateInfo) string { return s.Name })
	m.inputs = byName(m.Inputs, func(c *Command) string { return c.Name })
	m.events = byName(m.Events, func(e *EventType) string { return e.Name })
	m.effects = byName(m.Effects, func(e *EffectInfo) string { return e.Name })
	m.rows = map[[2]string][]*EdgeInfo{}
	for i := range m.Edges {
		e := &m.Edges[i]
		m.rows[[2]string{e.From, e.On}] = append(m.rows[[2]string{e.From, e.On}], e)
	}
}

func flatten[D any](edges []Edge[D]) []EdgeInfo {
	var flat []EdgeInfo
	for row, e := range edges {
		for _, from := range e.From {
			info := EdgeInfo{From: from, On: e.On, To: e.To, Emit: e.Emit, Effects: e.Effects, Noop: e.Noop, row: row}
			if e.To == Same {
				info.To = from
			}
			if e.If != nil {
				info.If, info.Doc = e.If.Name, e.If.Doc
			}
			flat = append(flat, info)
		}
	}
	return flat
}

func (r Retry) withDefaults() Retry {
	r.Attempts = cmp.Or(r.Attempts, 10)
	r.Base = cmp.Or(r.Base, 500*time.Millisecond)
	r.Factor = cmp.Or(r.Factor, 2)
	r.Cap = cmp.Or(r.Cap, time.Minute)
	return r
}

// checker collects the names of a definition and says what is wrong with it.
type checker struct {
	states, inputs, events, effects map[string]bool
}

func check[D any](d *Definition[D]) error {
	c := checker{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	if !token.MatchString(d.Name) || !regexp.MustCompile(`^[a-z][a-z0-9_]*$`).MatchString(d.Plural) {
		return fmt.Errorf("name %q or plural %q is not a lower-case token", d.Name, d.Plural)
	}
	for _, s := range d.States {
		if !dotted.MatchString(s.Name) || c.states[s.Name] {
			return fmt.Errorf("state %q is not made of dotted tokens, or named twice", s.Name)
		}
		c.states[s.Name] = true
	}
	for _, in := range d.Inputs {
		if !token.MatchString(in.Name) || c.inputs[in.Name] || in.Name == CommandElapsed || in.Name == CommandFailed || in.Name == CommandReconcile || in.Name == CommandRepair || in.Name == CommandDrop {
			return fmt.Errorf("input %q is not a lower-case token, named twice, or the engine's own", in.Name)
		}
		if in.Body != nil && reflect.TypeOf(in.Body).Kind() != reflect.Struct {
			return fmt.Errorf("body of input %q is not a struct", in.Name)
		}
		c.inputs[in.Name] = true
	}
	for _, e := range d.Events {
		if !dotted.MatchString(e.Name) || e.Subject != "" && !dotted.MatchString(e.Subject) || c.events[e.Name] || !slices.Contains([]Class{ClassState, ClassResource, ClassError, ClassProgress}, e.Class) {
			return fmt.Errorf("event %q is not made of dotted tokens, or its subject %q, named twice, or of no class", e.Name, e.Subject)
		}
		c.events[e.Name] = true
	}
	for _, e := range d.Effects {
		if !token.MatchString(e.Name) || c.effects[e.Name] {
			return fmt.Errorf("effect %q is not a lower-case token, or named twice", e.Name)
		}
		c.effects[e.Name] = true
		if !c.inputs[e.Done] || !c.inputs[e.Failed] {
			return fmt.Errorf("effect %q ends with undefined input %q or %q", e.Name, e.Done, e.Failed)
		}
		if late := slices.IndexFunc(d.Inputs, func(c Command) bool { return c.Name == e.Late }); e.Late != "" && (late < 0 || d.Inputs[late].Body != any(Late{})) {
			return fmt.Errorf("effect %q has late results become %q, which is no input with the body Late", e.Name, e.Late)
		}
	}
	for _, v := range d.Views {
		if !token.MatchString(v.Name) || v.Project == nil || len(v.Events) == 0 || slices.ContainsFunc(v.Events, func(e string) bool { return !c.events[e] }) {
			return fmt.Errorf("view %q is not a lower-case token, projects nothing, or is made of undefined events", v.Name)
		}
	}
	return cmp.Or(checkColumns(d), checkEdges(d, &c), checkAlarms(d, &c), checkStates(d))
}

// checkColumns: an index reads the members that it selects by as texts, and a value whose member is none cannot be read by it.
func checkColumns[D any](d *Definition[D]) error {
	for _, c := range d.Columns {
		if c.Selects && !slices.ContainsFunc(reflect.VisibleFields(reflect.TypeFor[D]()), func(f reflect.StructField) bool {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return "data."+cmp.Or(name, f.Name) == c.Path && f.Type.Kind() == reflect.String
		}) {
			return fmt.Errorf("column %q selects by %q, which is no text right in the data", c.Title, c.Path)
		}
	}
	return nil
}

// maxName is how long a name may be in a stored value.
const maxName = 255

var namesOf = map[string]*regexp.Regexp{KindEvent: dotted, KindEffect: token, KindTimer: token}

// checkNames refuses what a subject cannot be made of.
func (e *Entity) checkNames() error {
	for _, m := range e.Outbox {
		if err := m.checkName(); err != nil {
			return err
		}
	}
	for name := range e.Timers {
		if err := (&Message{Kind: KindTimer, Name: name}).checkName(); err != nil {
			return err
		}
	}
	return nil
}

func (m *Message) checkName() error {
	of := namesOf[m.Kind]
	if of == nil || len(m.Name) > maxName || !of.MatchString(m.Name) {
		return fmt.Errorf("%.64q under the name %.64q, which nothing can have", m.Kind, m.Name)
	}
	if m.Route != "" && !IsLabel(m.Route) {
		return fmt.Errorf("%.64q to the queue %.64q, which is no DNS label", m.Name, m.Route)
	}
	return nil
}

func checkEdges[D any](d *Definition[D], c *checker) error {
	closed := map[[2]string]int{} // (state, input) that an unguarded edge has closed
	for i, e := range d.Edges {
		if !c.inputs[e.On] {
			return fmt.Errorf("edge %d: undefined input %q", i, e.On)
		}
		if e.To != Same && !c.states[e.To] {
			return fmt.Errorf("edge %d (%s): undefined target %q", i, e.On, e.To)
		}
		for _, from := range e.From {
			if from != None && !c.states[from] {
				return fmt.Errorf("edge %d (%s): undefined source %q", i, e.On, from)
			}
			if from == None && e.To == Same {
				return fmt.Errorf("edge %d (%s): leaves an entity that does not exist as it is", i, e.On)
			}
			at := [2]string{from, e.On}
			if by, ok := closed[at]; ok {
				return fmt.Errorf("edge %d (%s from %s) is hidden by the unguarded edge %d", i, e.On, stateName(from), by)
			}
			if e.If == nil {
				closed[at] = i
			}
		}
		for _, ev := range e.Emit {
			if !c.events[ev] {
				return fmt.Errorf("edge %d (%s): undefined event %q", i, e.On, ev)
			}
		}
		for _, fx := range e.Effects {
			if !c.effects[fx] {
				return fmt.Errorf("edge %d (%s): undefined effect %q", i, e.On, fx)
			}
		}
		if e.Rearm && (e.To != Same || e.Reenter) {
			return fmt.Errorf("edge %d (%s): sets the deadline anew, but enters a state, which does so too", i, e.On)
		}
		if e.If != nil && (e.If.Holds == nil || e.If.Name == "") {
			return fmt.Errorf("edge %d (%s): guard without a name or a function", i, e.On)
		}
	}
	return nil
}

// checkAlarms: an alarm that a state does not take would be lost there, and with it what is to end.
func checkAlarms[D any](d *Definition[D], c *checker) error {
	seen := map[string]bool{timeoutTimer: true}
	flat := flatten(d.Edges)
	for _, a := range d.Alarms {
		if !token.MatchString(a.Name) || seen[a.Name] || strings.HasPrefix(a.Name, retryPrefix) || a.Until == nil || !c.inputs[a.Input] {
			return fmt.Errorf("alarm %q is not a lower-case token, named twice or like a timer of the engine, without a time, or of undefined input %q", a.Name, a.Input)
		}
		seen[a.Name] = true
		for _, s := range d.States {
			if !s.Terminal && !slices.ContainsFunc(flat, func(e EdgeInfo) bool { return e.From == s.Name && e.On == a.Input }) {
				return fmt.Errorf("alarm %q: state %s does not take its input %q", a.Name, s.Name, a.Input)
			}
		}
	}
	return nil
}

func checkStates[D any](d *Definition[D]) error {
	flat := flatten(d.Edges)
	reached := map[string]bool{None: true}
	for again := true; again; {
		again = false
		for _, e := range flat {
			if reached[e.From] && !reached[e.To] {
				reached[e.To], again = true, true
			}
		}
	}
	births := map[string]bool{}
	for _, in := range d.Inputs {
		births[in.Name] = in.Birth
	}
	for _, s := range d.States {
		if !reached[s.Name] {
			return fmt.Errorf("state %s cannot be reached", s.Name)
		}
		leaves := slices.ContainsFunc(flat, func(e EdgeInfo) bool { return e.From == s.Name && e.To != s.Name })
		if !s.Terminal && !leaves {
			return fmt.Errorf("state %s cannot be left and is not terminal", s.Name)
		}
		if t := s.Timeout; t != nil && (t.After == nil) == (t.Until == nil) {
			return fmt.Errorf("state %s: its timeout needs one of After and Until", s.Name)
		}
		// An edge that may be shut, or that does nothing, would leave the entity in the state without a deadline.
		if t := s.Timeout; t != nil && !slices.ContainsFunc(flat, func(e EdgeInfo) bool { return e.From == s.Name && e.On == t.Input && e.If == "" && !e.Noop }) {
			return fmt.Errorf("state %s: no edge for its timeout %q that is always open", s.Name, t.Input)
		}
		if s.Terminal {
			for _, e := range flat {
				if e.From == s.Name && e.To != s.Name && !births[e.On] {
					return fmt.Errorf("terminal state %s is left by %q, which is no birth", s.Name, e.On)
				}
			}
		}
	}
	for _, e := range flat {
		if e.From == None && !births[e.On] {
			return fmt.Errorf("input %q creates an entity, but is no birth", e.On)
		}
	}
	return nil
}
