package entities

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
)

func waitFlags(cmd *cobra.Command) {
	cmd.Flags().String("for", "settled", "settled (no longer on its way), state=A[,B], or condition=TYPE[=STATUS]")
	cmd.Flags().Duration("timeout", 30*time.Second, "at most this long; 0 is without end")
}

func wait(s *command.Session, cmd *cobra.Command, m *machines.Machine, args []string) error {
	text, _ := cmd.Flags().GetString("for") // the flags are those of waitFlags
	most, _ := cmd.Flags().GetDuration("timeout")
	wanted, err := wish(m, text)
	if err != nil {
		return err
	}
	e, err := until(s, m, args[0], 0, most, func(e *entity) (bool, error) {
		if wanted(e) {
			return true, nil
		}
		if st, _ := m.State(e.State); st.Failed && underWay(m, e, begunIn(m, e.State)) {
			return false, nil
		}
		return false, ended(m, e) // it will not come there by itself
	})
	if err != nil {
		return err
	}
	if err := arrived(s, m, e); err != nil {
		return err
	}
	if text == "settled" {
		return cmp.Or(said(s, m, e, false), ended(m, e))
	}
	return nil
}

// stateCalled is the state of that name, in whatever case it is written.
func stateCalled(m *machines.Machine, name string) (string, error) {
	for i := range m.States {
		if strings.EqualFold(m.States[i].Name, name) {
			return m.States[i].Name, nil
		}
	}
	return "", fmt.Errorf("%s has no state %q; it has %s", m.Name, name, strings.Join(stateNames(m), ", "))
}

// wish parses what is waited for.
func wish(m *machines.Machine, text string) (func(*entity) bool, error) {
	kind, value, _ := strings.Cut(text, "=")
	switch {
	case text == "settled":
		return func(e *entity) bool {
			return !underWay(m, e, begunIn(m, e.State))
		}, nil
	case kind == "state" && value != "":
		states := map[string]bool{}
		for _, state := range strings.Split(value, ",") {
			name, err := stateCalled(m, state)
			if err != nil {
				return nil, command.Usagef("--for: %w", err)
			}
			states[name] = true
		}
		return func(e *entity) bool { return states[e.State] }, nil
	case kind == "condition" && value != "":
		typ, status, ok := strings.Cut(value, "=")
		if !ok {
			status = string(machines.True)
		}
		return func(e *entity) bool {
			c, has := e.Condition(typ)
			return has && strings.EqualFold(string(c.Status), status)
		}, nil
	}
	return nil, command.Usagef("--for: %q is neither settled, state=A[,B] nor condition=TYPE[=STATUS]", text)
}

// begunIn are the effects that any command may begin in a state and leave it there, but for a look at the world that is repeated there anyway.
func begunIn(m *machines.Machine, state string) (effects []string) {
	for _, c := range m.Commands() {
		effects = append(effects, begins(m, c.Name, state)...)
	}
	st, _ := m.State(state)
	return slices.DeleteFunc(effects, func(effect string) bool { return st.Poll != nil && st.Poll.Effect == effect })
}

// arrived writes an entity that is as it was waited for.
func arrived(s *command.Session, m *machines.Machine, e *entity) error {
	switch {
	case s.Format == output.Name:
		_, err := fmt.Fprintln(s.Out, Name(m, e.id()))
		return err
	case s.Format.Human():
		_, err := fmt.Fprintf(s.Out, "%s %s, version %d\n", Name(m, e.id()), PaintState(s, m.States, e.State), e.Version)
		return err
	}
	return s.Format.Value(s.Out, e.raw)
}
