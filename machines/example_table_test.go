package machines_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bcc94042/instar/machines"
)

// parcel is the data of the machine that most examples run.
type parcel struct {
	Grams int       `json:"grams"`
	Until time.Time `json:"until,omitzero"` // it is kept for the one who is to fetch it
}

// parcels is a table with an effect (bring), a deadline (of a parcel under way) and a guard (light).
func parcels() machines.Definition[parcel] {
	light := &machines.Guard[parcel]{Name: "light", Doc: "needs less than 2000 g", Holds: func(t *machines.Tx[parcel]) bool {
		return t.Data.Grams < 2000
	}}
	return machines.Definition[parcel]{
		Name: "parcel", Plural: "parcels",
		States: []machines.State[parcel]{
			{Name: "packed"},
			{Name: "underway", Timeout: &machines.Timeout[parcel]{Input: "lose", After: func(*parcel) time.Duration { return time.Hour }}},
			{Name: "there", Terminal: true},
			{Name: "lost", Terminal: true, Failed: true},
		},
		Inputs: []machines.Command{
			{Name: "pack", Body: parcel{}, Birth: true},
			{Name: "send"},
			{Name: "weigh", Body: parcel{}},
			{Name: "brought", Report: true},
			{Name: "failed-to-bring", Body: machines.Failure{}, Report: true},
			{Name: "lose", Report: true},
		},
		Effects: []machines.Effect[parcel]{{Name: "bring", Done: "brought", Failed: "failed-to-bring", Retry: machines.Retry{Attempts: 2}}},
		Events:  []machines.EventType{{Name: "parcel.moved", Class: machines.ClassState}},
		Edges: []machines.Edge[parcel]{
			{From: []string{machines.None}, On: "pack", To: "packed", Emit: []string{"parcel.moved"}, Do: func(t *machines.Tx[parcel]) {
				*t.Data = *machines.Body[parcel](t)
			}},
			{From: []string{"packed"}, On: "weigh", To: machines.Same, Do: func(t *machines.Tx[parcel]) { t.Data.Grams = machines.Body[parcel](t).Grams }},
			{From: []string{"packed"}, On: "send", If: light, To: "underway", Emit: []string{"parcel.moved"}, Effects: []string{"bring"}},
			{From: []string{"underway"}, On: "brought", To: "there", Emit: []string{"parcel.moved"}},
			{From: []string{"underway"}, On: "failed-to-bring", To: "lost", Emit: []string{"parcel.moved"}},
			{From: []string{"underway"}, On: "lose", To: "lost", Emit: []string{"parcel.moved"}},
		},
	}
}

var noon = time.Date(2026, 1, 26, 12, 0, 0, 0, time.UTC)

// after is a parcel after some commands, all at noon; none may be refused.
func after(m *machines.Machine, inputs ...machines.Input) machines.Entity {
	e := m.New("default", "", "p1")
	for _, in := range inputs {
		in.Time = noon
		next, _, err := m.Step(e, in)
		if err != nil {
			panic(err)
		}
		e = next
	}
	return e
}

func pack(grams int) machines.Input {
	return machines.Input{Command: "pack", Body: fmt.Appendf(nil, `{"grams": %d}`, grams)}
}

// A broken table does not start: the panic says which row is wrong.
func ExampleDefine_broken() {
	defer func() { fmt.Println(recover()) }()
	d := parcels()
	d.Edges[0].Emit = []string{"parcel.vanished"}
	machines.Define(d)
	// Output: machines: parcel: edge 0 (pack): undefined event "parcel.vanished"
}

// A deadline must lead on: an edge that a guard may shut would leave the entity in its state without one.
func ExampleDefine_deadline() {
	defer func() { fmt.Println(recover()) }()
	d := parcels()
	d.Edges[5].If = &machines.Guard[parcel]{Name: "sunny", Holds: func(*machines.Tx[parcel]) bool { return false }}
	machines.Define(d)
	// Output: machines: parcel: state underway: no edge for its timeout "lose" that is always open
}

// What a guard's Doc says is what the refused user reads. The entity is returned as it was.
func ExampleGuard() {
	m := machines.Define(parcels())
	e := after(m, pack(5000))
	same, _, err := m.Step(e, machines.Input{Command: "send", Time: noon})
	var refusal *machines.Refusal
	errors.As(err, &refusal)
	fmt.Println(refusal.Code, "in version", same.Version)
	fmt.Println(refusal.Message)
	// Output:
	// guard-rejected in version 1
	// cannot send parcel default.p1 while it is packed: needs less than 2000 g
}

// Allowed is what has an edge; a guard may refuse it nonetheless, and reports are not offered to users.
func ExampleMachine_Allowed() {
	m := machines.Define(parcels())
	fmt.Println(m.Allowed(machines.None))
	fmt.Println(m.Allowed("packed"))
	fmt.Println(m.Allowed("underway"))
	// Output:
	// [pack]
	// [send weigh]
	// []
}

// With Same the state stays, and with it its deadline and the effects under way; the version rises nonetheless.
func ExampleEdge() {
	m := machines.Define(parcels())
	before := after(m, pack(10))
	e, out, _ := m.Step(before, machines.Input{Command: "weigh", Time: noon.Add(time.Minute), Body: json.RawMessage(`{"grams": 12}`)})
	fmt.Println(out.From, "->", out.To, "version", e.Version)
	fmt.Println(before.Data.(*parcel).Grams, e.Data.(*parcel).Grams, "since", e.Since.Format(time.TimeOnly))
	// Output:
	// packed -> packed version 2
	// 10 12 since 12:00:00
}

// The deadline is among the timers. Fired early, or for another stay in the state, it is ignored.
func ExampleTimeout() {
	m := machines.Define(parcels())
	e := after(m, pack(10), machines.Input{Command: "send"})
	deadline := e.Timers["deadline"]
	body, _ := json.Marshal(machines.Elapsed{Timer: "deadline", Armed: deadline.Armed})
	_, out, _ := m.Step(e, machines.Input{Command: machines.CommandElapsed, Time: deadline.At.Add(-time.Second), Body: body})
	fmt.Println(out.Result)
	e, out, _ = m.Step(e, machines.Input{Command: machines.CommandElapsed, Time: deadline.At, Body: body})
	fmt.Println(out.Result, e.State, "at", e.UpdatedAt.Format(time.TimeOnly))
	// Output:
	// ignored
	// applied lost at 13:00:00
}

// An alarm belongs to the data: it is armed in whatever state, and set anew when its time changes.
func ExampleAlarm() {
	d := parcels()
	d.Inputs = append(d.Inputs, machines.Command{Name: "expire", Report: true})
	d.Alarms = []machines.Alarm[parcel]{{Name: "keep", Input: "expire", Until: func(p *parcel) time.Time { return p.Until }}}
	d.Edges = append(d.Edges, machines.Edge[parcel]{From: []string{"packed", "underway"}, On: "expire", To: "lost", Emit: []string{"parcel.moved"}})
	m := machines.Define(d)
	e := after(m, machines.Input{Command: "pack", Body: json.RawMessage(`{"until": "2026-01-26T18:00:00Z"}`)}, machines.Input{Command: "send"})
	fmt.Println(e.State, e.Timers["keep"].At.Format(time.TimeOnly), e.Timers["deadline"].At.Format(time.TimeOnly))
	// Output: underway 18:00:00 13:00:00
}

// A guard that cannot decide says so: the command is refused, and the entity is not stuck.
func ExampleTx_Abort() {
	d := parcels()
	d.Edges[2].If = &machines.Guard[parcel]{Name: "paid", Holds: func(t *machines.Tx[parcel]) bool {
		t.Abort(errors.New("no price for this weight"))
		return true
	}}
	m := machines.Define(d)
	_, _, err := m.Step(after(m, pack(10)), machines.Input{Command: "send", Time: noon})
	var refusal *machines.Refusal
	fmt.Println(errors.As(err, &refusal), refusal.Code)
	fmt.Println(refusal.Message)
	// Output:
	// true evaluation-failed
	// guard paid: no price for this weight
}
