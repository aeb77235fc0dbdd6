package entities

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
)

// entity is one as the server shows it.
type entity struct {
	machines.Entity
	Revision uint64   `json:"revision"`
	Allowed  []string `json:"allowedCommands"`
	// Refused are those of Allowed that a guard refuses now, each with what would be answered. Only an entity that is read by itself has them.
	Refused map[string]string `json:"forbiddenCommands"`

	fields map[string]any // the same, for dotted paths
	raw    []byte
	row    bool // it is an item of a list, without data and effects
}

func decode(raw []byte) (*entity, error) {
	e := &entity{raw: raw}
	if err := json.Unmarshal(raw, e); err != nil {
		return nil, fmt.Errorf("the server's entity is not as expected: %w", err)
	}
	if err := json.Unmarshal(raw, &e.fields); err != nil {
		return nil, fmt.Errorf("the server's entity is not as expected: %w", err)
	}
	return e, nil
}

// id is how the entity is named on the command line.
func (e *entity) id() string {
	if e.Parent != "" {
		return e.Parent + "/" + e.ID
	}
	return e.ID
}

// why is the reason of the state that the entity is in, in one line.
func (e *entity) why() string {
	if next := awaits(e); next != "" {
		return "waits for " + next
	}
	if e.LastError != nil {
		return output.Line(e.LastError.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(e.Effects)) {
		if a := e.Effects[name]; a.NextTry != nil && a.Error != nil {
			return output.Line(fmt.Sprintf("%s try %d: %v", name, a.Try, a.Error))
		}
	}
	for _, c := range e.Conditions {
		if c.Status != machines.True && c.Message != "" {
			return output.Line(c.Type + ": " + c.Message)
		}
	}
	return ""
}

// PaintState colours a state by its kind among the states of its machine.
func PaintState(s *command.Session, states []machines.StateInfo, state string) string {
	i := slices.IndexFunc(states, func(st machines.StateInfo) bool { return st.Name == state })
	switch {
	case i < 0:
		return state
	case states[i].Failed:
		return s.Paint(command.Red, state)
	case states[i].Transitional:
		return s.Paint(command.Yellow, state)
	case states[i].Terminal:
		return state
	}
	return s.Paint(command.Green, state)
}

// describe writes an entity for people; page is its page in the console, if there is one.
func describe(s *command.Session, m *machines.Machine, e *entity, page string) error {
	now := time.Now()
	var b strings.Builder
	line := func(title, format string, args ...any) {
		if text := output.Line(fmt.Sprintf(format, args...)); text != "" {
			fmt.Fprintf(&b, "%-12s %s\n", title, text)
		}
	}
	line("ID", "%s", e.id())
	line("Namespace", "%s", e.Namespace)
	fmt.Fprintf(&b, "%-12s %s for %s\n", "State", PaintState(s, m.States, e.State), output.Age(e.Since, now))
	line("Version", "%d (generation %d, revision %d)", e.Version, e.Generation, e.Revision)
	line("Created", "%s ago", output.Age(e.CreatedAt, now))
	line("Labels", "%s", output.Pairs(e.Labels))
	for _, c := range m.Columns {
		line(c.Title, "%s", output.At(e.fields, c.Path))
	}
	if e.LastError != nil {
		line("Last error", "%v (%s ago)", e.LastError, output.Age(e.LastError.At, now))
	}
	for _, c := range e.Conditions {
		line("Condition", "%s", strings.TrimRight(fmt.Sprintf("%s=%s for %s %s: %s", c.Type, c.Status, output.Age(c.LastTransitionTime, now), c.Reason, c.Message), ": "))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Effects)) {
		line("Under way", "%s", attempt(name, e.Effects[name], now))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Timers)) {
		line("Timer", "%s in %s", name, output.Age(now, e.Timers[name].At))
	}
	line("Takes", "%s", strings.Join(slices.DeleteFunc(slices.Clone(e.Allowed), func(c string) bool { _, no := e.Refused[c]; return no }), ", "))
	line("Page", "%s", page)
	_, err := fmt.Fprint(s.Out, b.String())
	return err
}

func attempt(name string, a machines.Attempt, now time.Time) string {
	text := fmt.Sprintf("%s, try %d since %s", name, a.Try, output.Age(a.Since, now))
	if a.NextTry != nil {
		text += ", next in " + output.Age(now, *a.NextTry)
	}
	if a.Error != nil {
		text += ", after " + a.Error.Error()
	}
	return text
}
