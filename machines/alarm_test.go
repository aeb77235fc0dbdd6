package machines_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// loan is due at a point in time, whatever becomes of the book meanwhile.
type loan struct {
	Due time.Time `json:"due,omitzero"`
}

func loans() machines.Definition[loan] {
	told := []string{"loan.told"}
	lend := func(t *machines.Tx[loan]) {
		t.Data.Due = time.Time{}
		if n := machines.Body[minutes](t).N; n > 0 {
			t.Data.Due = t.Now().Add(time.Duration(n) * time.Minute)
		}
	}
	returned := func(t *machines.Tx[loan]) { t.Data.Due = time.Time{} }
	return machines.Definition[loan]{
		Name: "loan", Plural: "loans",
		States: []machines.State[loan]{
			{Name: "read", Timeout: &machines.Timeout[loan]{Input: "done", After: func(*loan) time.Duration { return time.Hour }}}, {Name: "shelved"}, {Name: "lost", Terminal: true},
		},
		Inputs: []machines.Command{
			{Name: "lend", Body: minutes{}, Birth: true}, {Name: "extend", Body: minutes{}}, {Name: "lose"}, {Name: "done", Report: true}, {Name: "due", Report: true},
		},
		Events: []machines.EventType{{Name: "loan.told", Class: machines.ClassState}},
		Edges: []machines.Edge[loan]{
			{From: []string{machines.None, "lost"}, On: "lend", To: "read", Do: lend, Emit: told},
			{From: []string{"read", "shelved"}, On: "extend", To: machines.Same, Do: lend, Emit: told},
			{From: []string{"read"}, On: "done", To: "shelved", Emit: told},
			{From: []string{"read", "shelved"}, On: "due", To: machines.Same, Do: returned, Emit: told},
			{From: []string{"read", "shelved"}, On: "lose", To: "lost", Emit: told},
		},
		Alarms: []machines.Alarm[loan]{{Name: "return", Input: "due", Until: func(l *loan) time.Time { return l.Due }}},
	}
}

func TestAnAlarmIsOfTheDataAndOfNoState(t *testing.T) {
	t.Parallel()
	m := machines.Define(loans())
	b := &bench{t: t, m: m, e: m.New("default", "", "book"), now: start}
	require.Equal(t, []string{"event loan.told", "timer deadline", "timer return"}, names(b.do("lend", `{"n":180}`)))
	alarm := machines.Timer{At: start.Add(3 * time.Hour), Armed: 1}
	require.Equal(t, alarm, b.e.Timers["return"])

	out, err := b.fire("deadline")
	require.NoError(t, err)
	require.Equal(t, "shelved", out.To)
	require.Equal(t, []string{"event loan.told"}, names(out), "it is armed already")
	require.Equal(t, map[string]machines.Timer{"return": alarm}, b.e.Timers, "it survives a change of the state, and only it does")

	require.Equal(t, []string{"event loan.told", "timer return"}, names(b.do("extend", `{"n":600}`)), "another time moves it")
	require.Equal(t, uint64(3), b.e.Timers["return"].Armed)

	out, err = b.fire("return")
	require.NoError(t, err)
	require.Equal(t, []string{"event loan.told"}, names(out))
	require.Empty(t, b.e.Timers)
	require.Equal(t, "shelved", b.e.State)
}

func TestAnAlarmEndsWithItsTimeAndWithTheEntity(t *testing.T) {
	t.Parallel()
	m := machines.Define(loans())
	b := &bench{t: t, m: m, e: m.New("default", "", "book"), now: start}
	b.do("lend", `{"n":5}`)
	b.do("extend", `{}`)
	require.NotContains(t, b.e.Timers, "return")
	b.do("extend", `{"n":5}`)
	require.Contains(t, b.e.Timers, "return")
	b.do("lose", "")
	require.Empty(t, b.e.Timers)
	b.do("lend", `{"n":7}`)
	require.Equal(t, b.now.Add(7*time.Minute), b.e.Timers["return"].At)
}

func TestAnAlarmMustBeTakenEverywhere(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*machines.Definition[loan]){
		`machines: loan: alarm "return": state read does not take its input "due"`: func(d *machines.Definition[loan]) {
			d.Edges[3].From = []string{"shelved"}
		},
		`machines: loan: alarm "deadline" is not a lower-case token, named twice or like a timer of the engine, without a time, or of undefined input "due"`: func(d *machines.Definition[loan]) {
			d.Alarms[0].Name = "deadline"
		},
	} {
		d := loans()
		spoil(&d)
		require.PanicsWithValue(t, want, func() { machines.Define(d) })
	}
}
