package machines_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// kettle boils until a point in time that others may move, or for as long as nobody says until when.
type kettle struct {
	Until time.Time `json:"until,omitzero"`
	Cups  int       `json:"cups,omitempty"`
}

type minutes struct {
	N int `json:"n"`
}

func kettles() machines.Definition[kettle] {
	boil := func(t *machines.Tx[kettle]) {
		t.Data.Until, t.Data.Cups = time.Time{}, t.Data.Cups+1
		if n := machines.Body[minutes](t).N; n > 0 {
			t.Data.Until = t.Now().Add(time.Duration(n) * time.Minute)
		}
	}
	return machines.Definition[kettle]{
		Name: "kettle", Plural: "kettles",
		States: []machines.State[kettle]{
			{Name: "boiling", Timeout: &machines.Timeout[kettle]{Input: "done", Until: func(t *machines.Tx[kettle]) time.Time { return t.Data.Until }}},
			{Name: "cold", Terminal: true},
		},
		Inputs: []machines.Command{{Name: "boil", Body: minutes{}, Birth: true}, {Name: "move", Body: minutes{}}, {Name: "done", Report: true}},
		Events: []machines.EventType{{Name: "kettle.told", Class: machines.ClassState}},
		Edges: []machines.Edge[kettle]{
			{From: []string{machines.None, "cold"}, On: "boil", To: "boiling", Do: boil, Emit: []string{"kettle.told"}},
			{From: []string{"boiling"}, On: "boil", To: machines.Same, Reenter: true, Do: boil, Emit: []string{"kettle.told"}},
			{From: []string{"boiling"}, On: "move", To: machines.Same, Rearm: true, Do: boil, Emit: []string{"kettle.told"}},
			{From: []string{"boiling"}, On: "done", To: "cold", Emit: []string{"kettle.told"}},
		},
	}
}

func kettleBench(t *testing.T) *bench {
	t.Helper()
	m := machines.Define(kettles())
	return &bench{t: t, m: m, e: m.New("default", "", "desk"), now: start}
}

func TestADeadlineMayBeAPointInTime(t *testing.T) {
	t.Parallel()
	b := kettleBench(t)
	b.do("boil", `{"n":3}`)
	require.Equal(t, map[string]machines.Timer{"deadline": {At: start.Add(3 * time.Minute), Armed: 1}}, b.e.Timers)

	b.now = start.Add(time.Minute)
	out := b.do("move", `{"n":5}`)
	require.Equal(t, []string{"event kettle.told", "timer deadline"}, names(out))
	require.Equal(t, map[string]machines.Timer{"deadline": {At: start.Add(6 * time.Minute), Armed: 2}}, b.e.Timers)
	require.Equal(t, start, b.e.Since, "the state was not entered anew")

	out, err := b.fire("deadline")
	require.NoError(t, err)
	require.Equal(t, "cold", out.To)
}

func TestADeadlineMayBeNone(t *testing.T) {
	t.Parallel()
	b := kettleBench(t)
	b.do("boil", "")
	require.Empty(t, b.e.Timers)
	b.do("move", `{"n":1}`)
	require.Len(t, b.e.Timers, 1)
	out := b.do("move", "")
	require.Equal(t, []string{"event kettle.told"}, names(out))
	require.Empty(t, b.e.Timers)
}

func TestABirthOfALiveEntityIsAnInputLikeOthers(t *testing.T) {
	t.Parallel()
	b := kettleBench(t)
	b.do("boil", `{"n":3}`)
	b.now = start.Add(time.Minute)
	b.do("boil", `{"n":3}`)
	require.Equal(t, 2, b.e.Data.(*kettle).Cups, "the data stays")
	require.Equal(t, start, b.e.CreatedAt)
	require.Equal(t, b.now, b.e.Since)
	_, err := b.fire("deadline")
	require.NoError(t, err)
	b.do("boil", `{"n":3}`)
	require.Equal(t, 1, b.e.Data.(*kettle).Cups, "another life")
	require.Equal(t, b.now, b.e.CreatedAt)
}

func TestATimeoutIsOneOfTwo(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*machines.Definition[kettle]){
		"its timeout needs one of After and Until": func(d *machines.Definition[kettle]) { d.States[0].Timeout.Until = nil },
		"state boiling: its timeout needs one of After": func(d *machines.Definition[kettle]) {
			d.States[0].Timeout.After = func(*kettle) time.Duration { return 1 }
		},
		"edge 1 (boil): sets the deadline anew, but":      func(d *machines.Definition[kettle]) { d.Edges[1].Rearm = true },
		"edge 3 (done): sets the deadline anew, but ente": func(d *machines.Definition[kettle]) { d.Edges[3].Rearm = true },
	} {
		d := kettles()
		spoil(&d)
		require.Contains(t, panics(func() { machines.Define(d) }), name)
	}
}
