package entities

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/machines"
)

// about adds the next command to try to a refusal that concerns one entity.
func about(err error, m *machines.Machine, id string) error {
	var p *client.Problem
	if !errors.As(err, &p) {
		return err
	}
	if p.Page != "" {
		err = fmt.Errorf("%w\n  see %s", err, p.Page)
	}
	at := func(verb string) error { return command.Try(err, "instar %s %s %s", m.Name, verb, id) }
	switch p.Code {
	case machines.CodeNotFound:
		if len(p.AllowedCommands) == 0 { // it is something else that is not there, which the detail names
			return err
		}
		for _, c := range m.Commands() {
			if c.Birth {
				return command.Try(err, "instar %s ls, or instar %s %s %s", m.Name, m.Name, c.Name, id)
			}
		}
		return command.Try(err, "instar %s ls", m.Name)
	case machines.CodeTransition, machines.CodeGuard, machines.CodeEvaluation:
		if p.CurrentState != "" {
			err = fmt.Errorf("%w\n  state %s takes %s", err, p.CurrentState, cmp.Or(strings.Join(p.AllowedCommands, ", "), "no command"))
		}
		if st, _ := m.State(p.CurrentState); st.Transitional {
			return command.Try(err, "instar %s wait %s --for settled", m.Name, id)
		}
		if p.CurrentState == machines.None {
			return err
		}
		return at("get")
	case machines.CodeExists:
		if p.CurrentState == machines.None { // another one is there, which the detail names
			return err
		}
		return at("get")
	case machines.CodePrecondition, machines.CodeParked:
		return at("get")
	case machines.CodeUnknown, machines.CodeStale:
		return at("events")
	case machines.CodeDead:
		return command.Try(err, "instar dlq ls")
	}
	return err
}

// unsure tells how to repeat a command of which it is not known whether it was stored.
func unsure(err error, again string) error {
	if code := command.CodeOf(err); code != command.ExitUnreachable && code != command.ExitTimeout || command.Busy(err) {
		return err
	}
	return command.Try(err, "instar doctor, then %s", again)
}
