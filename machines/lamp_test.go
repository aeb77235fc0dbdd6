package machines_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// lamp is the data of the machine that the tests of this folder run.
type lamp struct {
	Watts  int    `json:"watts"`
	Bought string `json:"bought,omitempty"`
	Heat   *heat  `json:"heat,omitempty"`
}

type heat struct {
	Degrees int `json:"degrees"`
}

func (h *heat) Validate() *machines.Refusal {
	var f machines.Findings
	if h.Degrees < -273 {
		f.Add("degrees", "is colder than anything")
	}
	return f.Refusal()
}

type wish struct {
	Watts int `json:"watts"`
}

func (w *wish) Validate() *machines.Refusal {
	if w.Watts < 0 {
		return machines.Invalid(machines.FieldError{Field: "watts", Message: "is negative"})
	}
	return nil
}

type tx = machines.Tx[lamp]

var strong = &machines.Guard[lamp]{Name: "strong", Doc: "needs 100 watts", Holds: func(t *tx) bool { return t.Data.Watts >= 100 }}

// definition is a fresh table each time, so that a test may break it.
func definition() machines.Definition[lamp] {
	return machines.Definition[lamp]{
		Name: "lamp", Plural: "lamps", Doc: "It shines.",
		States: []machines.State[lamp]{
			{Name: "warming", Timeout: &machines.Timeout[lamp]{Input: "late", After: func(*lamp) time.Duration { return time.Minute }}},
			{Name: "lit"},
			{Name: "broken", Failed: true},
			{Name: "gone", Terminal: true},
		},
		Inputs: []machines.Command{
			{Name: "buy", Body: wish{}, Birth: true},
			{Name: "dim"},
			{Name: "boost"},
			{Name: "blink"},
			{Name: "swap"},
			{Name: "lie"},
			{Name: "throw"},
			{Name: "warm", Body: heat{}, Report: true},
			{Name: "cold", Body: machines.Failure{}, Report: true},
			{Name: "seen", Report: true},
			{Name: "unseen", Body: machines.Failure{}, Report: true},
			{Name: "late", Report: true},
		},
		Effects: []machines.Effect[lamp]{
			{Name: "heat", Done: "warm", Failed: "cold", Retry: machines.Retry{Attempts: 3, Base: time.Second}, Payload: func(t *tx) any { return t.Data }},
			{Name: "look", Done: "seen", Failed: "unseen", Retry: machines.Retry{Attempts: 2}, Looks: true},
		},
		Columns: []machines.Column{{Title: "BOUGHT", Path: "data.bought", Selects: true}},
		Events: []machines.EventType{
			{Name: "lamp.bought", Class: machines.ClassState},
			{Name: "lamp.warm", Class: machines.ClassState, Subject: "lamp.is.warm"},
			{Name: "lamp.blinked", Class: machines.ClassProgress},
			{Name: "lamp.broke", Class: machines.ClassError},
			{Name: "lamp.gone", Class: machines.ClassState},
		},
		Edges: []machines.Edge[lamp]{
			{From: []string{machines.None, "gone"}, On: "buy", To: "warming", Do: buy, Emit: []string{"lamp.bought"}, Effects: []string{"heat"}},
			{From: []string{"warming"}, On: "warm", To: "lit", Emit: []string{"lamp.warm"}, Do: warm},
			{From: []string{"warming"}, On: "cold", To: "broken", Emit: []string{"lamp.broke"}},
			{From: []string{"warming"}, On: "late", If: strong, To: "broken", Emit: []string{"lamp.broke"}},
			{From: []string{"warming"}, On: "late", To: machines.Same, Emit: []string{"lamp.blinked"}, Effects: []string{"heat"}},
			{From: []string{"warming"}, On: "swap", To: machines.Same, Reenter: true, Emit: []string{"lamp.blinked"}, Effects: []string{"heat"}},
			{From: []string{"lit"}, On: "dim", To: machines.Same, Noop: true},
			{From: []string{"lit"}, On: "boost", If: strong, To: machines.Same, Emit: []string{"lamp.blinked"}},
			{From: []string{"warming", "lit"}, On: "blink", To: machines.Same, Do: blink, Effects: []string{"look"}},
			{From: []string{"warming", "lit"}, On: "seen", To: machines.Same, Emit: []string{"lamp.blinked"}},
			{From: []string{"warming", "lit"}, On: "unseen", To: machines.Same, Emit: []string{"lamp.blinked"}},
			{From: []string{"lit"}, On: "lie", To: machines.Same, Do: func(t *tx) { t.Emit("lamp.unheard", nil) }},
			{From: []string{"warming", "lit", "broken"}, On: "throw", To: "gone", Emit: []string{"lamp.gone"}, Do: func(t *tx) { t.Detail("lamp.gone", t.State()) }},
		},
	}
}

func buy(t *tx) {
	t.Data.Watts, t.Data.Bought = machines.Body[wish](t).Watts, t.Now().Format(time.TimeOnly)
	t.NextGeneration()
	t.Condition("Warm", machines.Unknown, "Cold", "")
}

func warm(t *tx) {
	t.Data.Heat = machines.Body[heat](t)
	t.Condition("Warm", machines.True, "Hot", "")
	t.Fail(nil)
}

// blink tells twice, each time something else.
func blink(t *tx) {
	t.Emit("lamp.blinked", 1)
	t.Emit("lamp.blinked", 2)
}

var start = time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)

// bench is one lamp and what happens to it.
type bench struct {
	t   *testing.T
	m   *machines.Machine
	e   machines.Entity
	now time.Time
	seq uint64
}

func setup(t *testing.T, inputs ...string) *bench {
	t.Helper()
	m := machines.Define(definition())
	b := &bench{t: t, m: m, e: m.New("default", "", "desk"), now: start}
	for _, in := range inputs {
		b.do(in, "")
	}
	return b
}

// do takes an input that must be applied.
func (b *bench) do(command, body string) machines.Output {
	b.t.Helper()
	out, err := b.try(command, body)
	require.NoError(b.t, err)
	require.Equal(b.t, machines.Applied, out.Result)
	return out
}

// try takes an input and keeps what follows it.
func (b *bench) try(command, body string) (machines.Output, error) {
	b.t.Helper()
	b.seq++
	before, err := json.Marshal(b.e)
	require.NoError(b.t, err)
	next, out, refused := b.m.Step(b.e, machines.Input{Command: command, Body: json.RawMessage(body), Seq: b.seq, ID: "id", Time: b.now, Actor: "somebody", Reason: "because", Trace: "00-1-2-01"})
	after, err := json.Marshal(b.e)
	require.NoError(b.t, err)
	require.Equal(b.t, string(before), string(after), "the given entity was changed")
	b.e = next
	return out, refused
}

func (b *bench) report(name, effect, data string) (machines.Output, error) {
	b.t.Helper()
	body, err := json.Marshal(machines.Report{Attempt: b.e.Effects[effect].ID, Data: json.RawMessage(data)})
	require.NoError(b.t, err)
	return b.try(name, string(body))
}

func (b *bench) fail(effect string, f machines.Failure) (machines.Output, error) {
	b.t.Helper()
	body, err := json.Marshal(machines.EffectFailed{Effect: effect, Attempt: b.e.Effects[effect].ID, Failure: f})
	require.NoError(b.t, err)
	return b.try(machines.CommandFailed, string(body))
}

func (b *bench) fire(timer string) (machines.Output, error) {
	b.t.Helper()
	return b.fireAt(timer, b.e.Timers[timer].At)
}

func (b *bench) fireAt(timer string, now time.Time) (machines.Output, error) {
	b.t.Helper()
	b.now = now
	body, err := json.Marshal(machines.Elapsed{Timer: timer, Armed: b.e.Timers[timer].Armed})
	require.NoError(b.t, err)
	return b.try(machines.CommandElapsed, string(body))
}

// refusal is the error as the answer that it must be.
func refusal(t *testing.T, err error) *machines.Refusal {
	t.Helper()
	var r *machines.Refusal
	require.ErrorAs(t, err, &r)
	return r
}

// names are the messages of an output as "kind name".
func names(out machines.Output) []string {
	var all []string
	for _, m := range out.Messages {
		all = append(all, m.Kind+" "+m.Name)
	}
	return all
}
