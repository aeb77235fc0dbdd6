package consumers

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// thing is a small lifecycle with everything that the consumers must handle.
type thing struct {
	Sum  int    `json:"sum"`
	Text string `json:"text,omitempty"`
}

type addBody struct {
	N int `json:"n"`
}

type workBody struct {
	How string `json:"how"`
}

func (b *addBody) Validate() *machines.Refusal {
	if b.N < 0 {
		return machines.Invalid(machines.FieldError{Field: "n", Message: "is negative"})
	}
	return nil
}

var thingMachine = machines.Define(machines.Definition[thing]{
	Name: "thing", Plural: "things", Doc: "For tests.",
	States: []machines.State[thing]{
		{Name: "open"},
		{Name: "working", Timeout: &machines.Timeout[thing]{Input: "late", After: func(*thing) time.Duration { return 2 * time.Second }}},
		{Name: "broken", Failed: true},
		{Name: "closed", Terminal: true},
	},
	Inputs: []machines.Command{
		{Name: "create", Birth: true},
		{Name: "add", Body: addBody{}},
		{Name: "work", Body: workBody{}},
		{Name: "poison"},
		{Name: "idle"},
		{Name: "close"},
		{Name: "done", Report: true, Body: workBody{}},
		{Name: "failed-work", Report: true, Body: machines.Failure{}},
		{Name: "late", Report: true},
	},
	Effects: []machines.Effect[thing]{{
		Name: "work", Done: "done", Failed: "failed-work", Timeout: time.Second,
		Retry:   machines.Retry{Attempts: 3, Base: 20 * time.Millisecond, Cap: 50 * time.Millisecond},
		Payload: func(t *machines.Tx[thing]) any { return workBody{How: t.Data.Text} },
	}},
	Events: []machines.EventType{
		{Name: "thing.created", Class: machines.ClassState},
		{Name: "thing.added", Class: machines.ClassState},
		{Name: "thing.working", Class: machines.ClassProgress},
		{Name: "thing.worked", Class: machines.ClassState},
		{Name: "thing.broken", Class: machines.ClassError},
		{Name: "thing.closed", Class: machines.ClassState},
	},
	Edges: []machines.Edge[thing]{
		{From: []string{machines.None, "closed"}, On: "create", To: "open", Emit: []string{"thing.created"}},
		{From: []string{"open"}, On: "add", To: machines.Same, Emit: []string{"thing.added"}, Do: func(t *machines.Tx[thing]) { t.Data.Sum += machines.Body[addBody](t).N }},
		{From: []string{"open"}, On: "work", To: "working", Emit: []string{"thing.working"}, Effects: []string{"work"}, Do: func(t *machines.Tx[thing]) { t.Data.Text = machines.Body[workBody](t).How }},
		{From: []string{"open"}, On: "poison", To: machines.Same, Emit: []string{"thing.added"}, Do: func(*machines.Tx[thing]) { panic("poison") }},
		{From: []string{"open", "working", "broken", "closed"}, On: "idle", To: machines.Same, Noop: true},
		{From: []string{"working"}, On: "done", To: "open", Emit: []string{"thing.worked"}, Do: func(t *machines.Tx[thing]) { t.Data.Text = machines.Body[workBody](t).How }},
		{From: []string{"working"}, On: "failed-work", To: "broken", Emit: []string{"thing.broken"}, Do: func(t *machines.Tx[thing]) { t.Fail(machines.Body[machines.Failure](t)) }},
		{From: []string{"working"}, On: "late", To: "broken", Emit: []string{"thing.broken"}},
		{From: []string{"open", "broken"}, On: "close", To: "closed", Emit: []string{"thing.closed"}},
	},
})
