package entities

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

type lamp struct{ Watts int }

type wish struct{ Watts int }

// What is forbidden before a command comes is what is refused when it has come, whatever its body says; what a body can change, nobody forbids.
func TestWhatIsForbiddenNoBodyCanChange(t *testing.T) {
	t.Parallel()
	type tx = machines.Tx[lamp]
	edge := func(on string, holds func(*tx) bool) machines.Edge[lamp] {
		e := machines.Edge[lamp]{From: []string{"lit"}, On: on, To: machines.Same}
		if holds != nil {
			e.If = &machines.Guard[lamp]{Name: on, Doc: "it has no 100 watts", Holds: holds}
		}
		return e
	}
	strong := func(t *tx) bool { return t.Data.Watts >= 100 }
	asks := func(t *tx) bool { return machines.Body[wish](t).Watts > 0 }
	m := machines.Define(machines.Definition[lamp]{
		Name: "lamp", Plural: "lamps", States: []machines.State[lamp]{{Name: "lit"}, {Name: "gone", Terminal: true}},
		Inputs: []machines.Command{{Name: "buy", Birth: true}, {Name: "boost"}, {Name: "either"}, {Name: "asks", Body: wish{}}, {Name: "both", Body: wish{}}, {Name: "fails"}, {Name: "throw"}, {Name: "owned"}, {Name: "told"}, {Name: "dim"}},
		Edges: []machines.Edge[lamp]{
			{From: []string{machines.None, "gone"}, On: "buy", To: "lit"},
			{From: []string{"lit"}, On: "throw", To: "gone"},
			edge("boost", strong), edge("either", strong), edge("either", nil), edge("asks", asks),
			edge("both", func(t *tx) bool { return strong(t) && asks(t) }),
			edge("owned", func(t *tx) bool { return t.In.Actor == "ann" }),
			edge("told", func(t *tx) bool { return t.In.Reason != "" }),
			edge("dim", func(t *tx) bool { return strong(t) && t.In.Reason == "" }),
			edge("fails", func(t *tx) bool { t.Abort(errors.New("nobody knows")); return false }),
		},
	})
	e := m.New("default", "", "desk")
	require.Empty(t, forbidden(m, e, "bob"))
	e.State = "lit"
	found := forbidden(m, e, "bob")
	require.Len(t, found, 4)
	for name, body := range map[string]string{"boost": "", "both": `{"Watts":60}`, "owned": "", "dim": ""} {
		_, _, err := m.Step(e, machines.Input{Command: name, Actor: "bob", Body: []byte(body)})
		require.EqualError(t, err, found[name])
	}
	require.NotContains(t, forbidden(m, e, "ann"), "owned")
	e.Data = &lamp{Watts: 100}
	require.Empty(t, forbidden(m, e, "ann"))
}
