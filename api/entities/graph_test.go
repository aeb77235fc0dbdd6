package entities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/machines"
)

func TestAGraphSaysFromWhereACommandLeads(t *testing.T) {
	t.Parallel()
	type door struct{}
	g := entities.GraphOf(machines.Define(machines.Definition[door]{
		Name: "door", Plural: "doors",
		States: []machines.State[door]{{Name: "open"}, {Name: "gone", Terminal: true}},
		Inputs: []machines.Command{{Name: "build", Birth: true}, {Name: "break"}},
		Events: []machines.EventType{{Name: "door.moved", Class: machines.ClassState}},
		Edges: []machines.Edge[door]{
			{From: []string{machines.None, "gone"}, On: "build", To: "open", Emit: []string{"door.moved"}},
			{From: []string{"open"}, On: "break", To: "gone", Emit: []string{"door.moved"}},
		},
	}))
	require.Equal(t, entities.CommandInfo{Name: "build", Birth: true, From: []string{"", "gone"}}, g.Commands[0])
	require.Equal(t, []string{"open"}, g.Commands[1].From)
}
