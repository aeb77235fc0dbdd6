package api

import (
	"context"
	"fmt"
	"strings"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// room refuses a command that begins a life in a namespace that has as many entities as it may. They are counted in the indexes of this
// process: what was begun a moment ago, here or on another node, is not among them yet.
func (s *Server) room(ctx context.Context, cmd streams.Command) *Problem {
	if s.limits.entities == nil {
		return nil
	}
	m := s.machineNamed(cmd.Machine)
	if c, _ := m.Input(cmd.Name); !c.Birth {
		return nil
	}
	for _, one := range s.o.Machines {
		if s.indexed(one.Name) != nil {
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
	if s.limits.entities.Allow(living) {
		return nil
	}
	if !streams.MadeUp(cmd.ID) { // it may have begun one then, and be answered as then
		if _, err := s.answers.Get(ctx, streams.AnswerKey(cmd.Machine, cmd.Key, cmd.ID)); err == nil {
			return nil
		}
	}
	return problem(codeQuota, fmt.Sprintf("the namespace %s has %d entities that live, and may have %d (limits.entitiesPerNamespace); the command was not stored", namespace, living, s.limits.entities.Bound()))
}

func lives(m *machines.Machine, state string) bool {
	st, known := m.State(state)
	return !known || !st.Terminal
}

// livingOf is how many of the entities of a machine, counted by state, live.
func livingOf(m *machines.Machine, counts map[string]int) (n int) {
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
