package machines_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/diagram"
)

func TestDefinePanicsWithTheReason(t *testing.T) {
	t.Parallel()
	type table = machines.Definition[lamp]
	edge := func(e machines.Edge[lamp]) func(*table) { return func(d *table) { d.Edges = append(d.Edges, e) } }
	cases := map[string]struct {
		spoil func(*table)
		want  string
	}{
		"ANameInCapitals":        {func(d *table) { d.Name = "Lamp" }, `machines: Lamp: name "Lamp" or plural "lamps" is not a lower-case token`},
		"AnEmptyName":            {func(d *table) { d.Name = "" }, "is not a lower-case token"},
		"APluralWithADash":       {func(d *table) { d.Plural = "desk-lamps" }, `plural "desk-lamps" is not a lower-case token`},
		"AStateWithASpace":       {func(d *table) { d.States[1].Name = "on fire" }, `state "on fire" is not made of dotted tokens`},
		"AnEmptyState":           {func(d *table) { d.States[1].Name = "" }, `state "" is not made of dotted tokens`},
		"AStateNamedTwice":       {func(d *table) { d.States[1].Name = "warming" }, `state "warming" is not made of dotted tokens, or named twice`},
		"AnInputInCapitals":      {func(d *table) { d.Inputs[1].Name = "Dim" }, `input "Dim" is not a lower-case token`},
		"AnInputNamedTwice":      {func(d *table) { d.Inputs[1].Name = "buy" }, `input "buy" is not a lower-case token, named twice`},
		"TheEnginesElapsed":      {func(d *table) { d.Inputs[1].Name = machines.CommandElapsed }, "or the engine's own"},
		"TheEnginesFailed":       {func(d *table) { d.Inputs[1].Name = machines.CommandFailed }, "or the engine's own"},
		"ABodyThatIsNoStruct":    {func(d *table) { d.Inputs[0].Body = 7 }, `body of input "buy" is not a struct`},
		"ABodyThatIsAPointer":    {func(d *table) { d.Inputs[0].Body = &wish{} }, `body of input "buy" is not a struct`},
		"AnEventWithASpace":      {func(d *table) { d.Events[0].Name = "lamp bought" }, `event "lamp bought" is not made of dotted tokens`},
		"AnEventNamedTwice":      {func(d *table) { d.Events[0].Name = "lamp.warm" }, "named twice"},
		"ASubjectWithASpace":     {func(d *table) { d.Events[0].Subject = "lamp bought" }, `its subject "lamp bought"`},
		"AnEventOfNoClass":       {func(d *table) { d.Events[0].Class = "gossip" }, "of no class"},
		"AnEffectInCapitals":     {func(d *table) { d.Effects[0].Name = "Heat" }, `effect "Heat" is not a lower-case token`},
		"AnEffectNamedTwice":     {func(d *table) { d.Effects[1].Name = "heat" }, `effect "heat" is not a lower-case token, or named twice`},
		"AnEffectThatEndsNot":    {func(d *table) { d.Effects[0].Done = "hot" }, `effect "heat" ends with undefined input "hot"`},
		"AnEffectThatFailsNot":   {func(d *table) { d.Effects[0].Failed = "" }, `effect "heat" ends with undefined input "warm" or ""`},
		"AnUndefinedInput":       {edge(machines.Edge[lamp]{From: []string{"lit"}, On: "sing", To: "lit"}), `undefined input "sing"`},
		"AnUndefinedTarget":      {edge(machines.Edge[lamp]{From: []string{"broken"}, On: "dim", To: "dark"}), `undefined target "dark"`},
		"AnEmptyTarget":          {edge(machines.Edge[lamp]{From: []string{"broken"}, On: "dim"}), `undefined target ""`},
		"AnUndefinedSource":      {edge(machines.Edge[lamp]{From: []string{"dark"}, On: "dim", To: "lit"}), `undefined source "dark"`},
		"NothingStayingAsItIs":   {edge(machines.Edge[lamp]{From: []string{machines.None}, On: "dim", To: machines.Same}), "leaves an entity that does not exist as it is"},
		"AnEdgeThatIsHidden":     {edge(machines.Edge[lamp]{From: []string{"lit"}, On: "throw", To: "broken"}), `(throw from lit) is hidden by the unguarded edge 12`},
		"AnUndefinedEvent":       {edge(machines.Edge[lamp]{From: []string{"broken"}, On: "dim", To: "lit", Emit: []string{"lamp.sang"}}), `undefined event "lamp.sang"`},
		"AnUndefinedEffect":      {edge(machines.Edge[lamp]{From: []string{"broken"}, On: "dim", To: "lit", Effects: []string{"sing"}}), `undefined effect "sing"`},
		"AGuardWithoutAName":     {edge(machines.Edge[lamp]{From: []string{"broken"}, On: "dim", To: "lit", If: &machines.Guard[lamp]{Holds: strong.Holds}}), "guard without a name or a function"},
		"AGuardWithoutFunction":  {edge(machines.Edge[lamp]{From: []string{"broken"}, On: "dim", To: "lit", If: &machines.Guard[lamp]{Name: "odd"}}), "guard without a name or a function"},
		"AStateOutOfReach":       {func(d *table) { d.States = append(d.States, machines.State[lamp]{Name: "dark", Terminal: true}) }, "state dark cannot be reached"},
		"AStateWithoutAnExit":    {func(d *table) { d.Edges[12].From = []string{"warming", "lit"} }, "state broken cannot be left and is not terminal"},
		"ATimeoutWithoutAnEdge":  {func(d *table) { d.Edges = slices.Delete(d.Edges, 3, 5) }, `state warming: no edge for its timeout "late"`},
		"AnEndThatIsLeft":        {edge(machines.Edge[lamp]{From: []string{"gone"}, On: "dim", To: "lit"}), `terminal state gone is left by "dim", which is no birth`},
		"ABeginningWithoutBirth": {edge(machines.Edge[lamp]{From: []string{machines.None}, On: "dim", To: "lit"}), `input "dim" creates an entity, but is no birth`},
		"AColumnOfANumber":       {func(d *table) { d.Columns[0].Path = "data.watts" }, `column "BOUGHT" selects by "data.watts", which is no text right in the data`},
		"AColumnOfDeeperData":    {func(d *table) { d.Columns[0].Path = "data.heat.degrees" }, `column "BOUGHT" selects by "data.heat.degrees"`},
		"AColumnOfTheState":      {func(d *table) { d.Columns[0].Path = "state" }, `column "BOUGHT" selects by "state"`},
		"AColumnOfNothing":       {func(d *table) { d.Columns[0].Path = "data.Bought" }, `column "BOUGHT" selects by "data.Bought"`},
		"AViewOfNothing":         {func(d *table) { d.Views = []machines.View{{Name: "shadows"}} }, `view "shadows"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := definition()
			c.spoil(&d)
			require.Contains(t, panics(func() { machines.Define(d) }), c.want)
		})
	}
}

func panics(f func()) (reason string) {
	defer func() { reason, _ = recover().(string) }()
	f()
	return ""
}

func TestWhatAMachineTellsOfItself(t *testing.T) {
	t.Parallel()
	m := machines.Define(definition())

	s, ok := m.State("warming")
	require.True(t, ok)
	require.Equal(t, machines.StateInfo{Name: "warming", Transitional: true, Deadline: "late"}, s)
	_, ok = m.State("dark")
	require.False(t, ok)

	e, ok := m.Effect("heat")
	require.True(t, ok)
	require.Equal(t, machines.Retry{Attempts: 3, Base: time.Second, Factor: 2, Cap: time.Minute}, e.Retry, "what is not said has a default")
	require.Equal(t, time.Minute, e.Timeout)
	_, ok = m.Effect("sing")
	require.False(t, ok)

	ev, ok := m.Event("lamp.bought")
	require.True(t, ok)
	require.Equal(t, "lamp.bought", ev.Subject, "the name, unless it is said")
	ev, _ = m.Event("lamp.warm")
	require.Equal(t, "lamp.is.warm", ev.Subject)
	for _, own := range []string{machines.EventRefused, machines.EventDead, machines.EventRetrying, machines.EventRetried} {
		_, ok := m.Event(own)
		require.True(t, ok, own)
	}

	in, ok := m.Input("warm")
	require.True(t, ok)
	require.Equal(t, &heat{}, in.NewBody())
	in, _ = m.Input("dim")
	require.Nil(t, in.NewBody())
	_, ok = m.Input("sing")
	require.False(t, ok)

	require.Equal(t, []string{"buy"}, m.Allowed(machines.None))
	require.Equal(t, []string{"dim", "boost", "blink", "lie", "throw"}, m.Allowed("lit"))
	require.Equal(t, []string{"buy"}, m.Allowed("gone"))
	require.Empty(t, m.Allowed("dark"))
	require.Len(t, m.Commands(), 7)
}

func TestTheDiagramDependsOnTheTableAlone(t *testing.T) {
	t.Parallel()
	m := machines.Define(definition())
	want := `stateDiagram-v2
    state "warming" as warming
    state "lit" as lit
    state "broken" as broken
    state "gone" as gone
    [*] --> warming: buy
    warming --> warming: late · swap · blink · seen · unseen
    warming --> lit: warm
    warming --> broken: cold · late [strong]
    warming --> gone: throw
    lit --> lit: boost [strong] · blink · seen · unseen · lie
    lit --> gone: throw
    broken --> gone: throw
    gone --> warming: buy
    gone --> [*]
`
	require.Equal(t, want, diagram.Mermaid(m))
	require.Equal(t, diagram.DOT(m), diagram.DOT(machines.Define(definition())))
	require.Contains(t, diagram.DOT(m), `"gone" [peripheries=2]`)
	require.Contains(t, diagram.DOT(m), `"warming" [style="rounded,dashed"]`)
	require.Contains(t, diagram.DOT(m), `"warming" -> "broken" [label="cold\nlate [strong]"]`)
}
