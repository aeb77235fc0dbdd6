package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// room refuses a command that begins a life in a namespace that has as many entities as it may. One that was sent before under the same key
// begins none: the engine answers it as then.
func (s *Server) room(ctx context.Context, cmd streams.Command) *Problem {
	if s.limits.entities == nil {
		return nil
	}
	p := s.full(cmd)
	if p == nil {
		return nil
	}
	if cmd.ID != "" && !streams.MadeUp(cmd.ID) {
		before, err := s.sentBefore(ctx, cmd)
		if err != nil {
			return unavailable("the namespace may be full, and it is not known whether the command was stored before under its key")
		}
		if before {
			return nil
		}
	}
	if p.Code == codeQuota {
		s.limits.entities.Refused()
	}
	return p
}

// full says that a command would begin a life for which there may be no room. Entities are counted in the indexes of this process: what was
// begun a moment ago, here or on another node, is not among them yet.
func (s *Server) full(cmd streams.Command) *Problem {
	m := s.machineNamed(cmd.Machine)
	if c, _ := m.Input(cmd.Name); !c.Birth || !ends(m) {
		return nil
	}
	for _, one := range s.o.Machines {
		if ends(one) && s.indexed(one.Name) != nil {
			return unavailable("what there is in the namespace is still being counted; the command was not stored")
		}
	}
	if it, there := s.o.Indexes[m.Name].Get(cmd.Key); there && lives(m, it.State) {
		return nil // it begins none
	}
	namespace, _, _ := strings.Cut(cmd.Key, ".")
	living := 0
	for _, one := range s.o.Machines {
		living += livingOf(one, s.o.Indexes[one.Name].Counts(namespace))
	}
	if s.limits.entities.Allows(living) {
		return nil
	}
	return problem(codeQuota, fmt.Sprintf("the namespace %s has %d entities that live, and may have %d (limits.entitiesPerNamespace); the command was not stored", namespace, living, s.limits.entities.Bound()))
}

// sentBefore reports whether a command of the same id waits to be decided, or was answered.
func (s *Server) sentBefore(ctx context.Context, cmd streams.Command) (bool, error) {
	waits, unknown := streams.HoldsID(ctx, s.commands, s.o.Names.StoredOf(cmd.Machine, cmd.Key), streams.CommandID(cmd.Machine, cmd.Key, cmd.ID))
	if waits {
		return true, nil
	}
	_, err := s.answers.Get(ctx, streams.AnswerKey(cmd.Machine, cmd.Key, cmd.ID)) // after the question above: a command is answered before it is gone
	if errors.Is(err, kv.ErrNotFound) {
		return false, unknown
	}
	return err == nil, err
}

// ends reports whether entities of a machine can end. The quota is of these only: nobody could make room by ending others.
func ends(m *machines.Machine) bool {
	return slices.ContainsFunc(m.States, func(st machines.StateInfo) bool { return st.Terminal })
}

func lives(m *machines.Machine, state string) bool {
	st, known := m.State(state)
	return !known || !st.Terminal
}

// livingOf is how many of the entities of a machine, counted by state, live and can end.
func livingOf(m *machines.Machine, counts map[string]int) (n int) {
	if !ends(m) {
		return 0
	}
	for state, k := range counts {
		if lives(m, state) {
			n += k
		}
	}
	return n
}

// fullest is how many entities live in the namespace that has most.
func (s *Server) fullest() (most int) {
	all := map[string]int{}
	for _, m := range s.o.Machines {
		for namespace, counts := range s.o.Indexes[m.Name].CountsByNamespace() {
			all[namespace] += livingOf(m, counts)
			most = max(most, all[namespace])
		}
	}
	return most
}
