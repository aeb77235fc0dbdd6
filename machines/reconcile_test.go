package machines

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pairMachine starts two effects at once.
var pairMachine = Define(Definition[struct{}]{
	Name: "pair", Plural: "pairs", Doc: "For tests.",
	States: []State[struct{}]{{Name: "working"}, {Name: "done", Terminal: true}},
	Inputs: []Command{{Name: "create", Birth: true}, {Name: "left-done", Report: true}, {Name: "right-done", Report: true}, {Name: "failed-half", Report: true, Body: Failure{}}},
	Effects: []Effect[struct{}]{
		{Name: "left", Done: "left-done", Failed: "failed-half", Timeout: time.Second},
		{Name: "right", Done: "right-done", Failed: "failed-half", Timeout: time.Second},
	},
	Events: []EventType{{Name: "pair.moved", Class: ClassState}},
	Edges: []Edge[struct{}]{
		{From: []string{None}, On: "create", To: "working", Emit: []string{"pair.moved"}, Effects: []string{"left", "right"}},
		{From: []string{"working"}, On: "left-done", To: "done", Emit: []string{"pair.moved"}},
		{From: []string{"working"}, On: "right-done", To: "done", Emit: []string{"pair.moved"}},
		{From: []string{"working"}, On: "failed-half", To: "done", Emit: []string{"pair.moved"}},
	},
})

// What is sent again has ids of its own: streams drop what has one that they have seen. The same version at another time, after the
// first one was lost, has other effects.
func TestEffectsHaveIDsOfTheirOwn(t *testing.T) {
	t.Parallel()
	created := func(at time.Time) (Entity, map[string]bool) {
		e, out, err := pairMachine.Step(pairMachine.New("default", "", "a"), Input{Command: "create", Time: at})
		require.NoError(t, err)
		ids := map[string]bool{}
		for _, m := range out.Messages {
			if m.Kind == KindEffect {
				ids[m.ID("pair", "default.a")] = true
			}
		}
		require.Len(t, ids, 2)
		return e, ids
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	e, first := created(at)
	_, again := created(at)
	require.Equal(t, first, again, "publishing it again changes nothing")
	_, later := created(at.Add(time.Nanosecond))
	pending := map[string]bool{}
	for _, m := range pairMachine.Pending(e) {
		pending[m.ID("pair", "default.a")] = true
	}
	require.Len(t, pending, 2)
	for id := range first {
		require.NotContains(t, later, id)
	}
}

// What is sent again of an attempt carries the fence that its first message has: whichever comes last, a provider that refuses older ones takes
// both for the same. After a loss, whose versions it may have seen, it is a higher one; an older release has stored none.
func TestAnAttemptKeepsItsFence(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	e, _, err := pairMachine.Step(pairMachine.New("default", "", "a"), Input{Command: "create", Time: at})
	require.NoError(t, err)
	fences := func(e Entity) (all []uint64) {
		for _, m := range pairMachine.Pending(e) {
			var task Task
			require.NoError(t, json.Unmarshal(m.Body, &task))
			all = append(all, task.Fence)
		}
		return all
	}
	e.Version = 5
	require.Equal(t, []uint64{1, 1}, fences(e))
	again, _, err := pairMachine.Reconciled(e, 8, Input{Time: at}, nil)
	require.NoError(t, err)
	require.Equal(t, []uint64{9, 9}, fences(again))
	require.Equal(t, []uint64{1, 1}, fences(e), "what was there before is not written")
	for name := range e.Effects {
		e.Effects[name] = Attempt{ID: e.Effects[name].ID, Try: 1}
	}
	require.Equal(t, []uint64{5, 5}, fences(e))
}
