package consumertest

import (
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/publish"
)

// Thing is a small lifecycle with everything that the consumers must handle.
type Thing struct {
	Sum  int    `json:"sum"`
	Text string `json:"text,omitempty"`
}

type AddBody struct {
	N int `json:"n"`
}

type WorkBody struct {
	How string `json:"how"`
}

func (b *AddBody) Validate() *machines.Refusal {
	if b.N < 0 {
		return machines.Invalid(machines.FieldError{Field: "n", Message: "is negative"})
	}
	return nil
}

var Things = machines.Define(machines.Definition[Thing]{
	Name: "thing", Plural: "things", Doc: "For tests.",
	States: []machines.State[Thing]{
		{Name: "open"},
		{Name: "working", Timeout: &machines.Timeout[Thing]{Input: "late", After: func(*Thing) time.Duration { return 2 * time.Second }}},
		{Name: "broken", Failed: true},
		{Name: "closed", Terminal: true},
	},
	Inputs: []machines.Command{
		{Name: "create", Birth: true},
		{Name: "add", Body: AddBody{}},
		{Name: "work", Body: WorkBody{}},
		{Name: "poison"},
		{Name: "idle"},
		{Name: "close"},
		{Name: "done", Report: true, Body: WorkBody{}},
		{Name: "failed-work", Report: true, Body: machines.Failure{}},
		{Name: "late", Report: true},
	},
	Effects: []machines.Effect[Thing]{{
		Name: "work", Done: "done", Failed: "failed-work", Timeout: time.Second,
		Retry:   machines.Retry{Attempts: 3, Base: 20 * time.Millisecond, Cap: 50 * time.Millisecond},
		Payload: func(t *machines.Tx[Thing]) any { return WorkBody{How: t.Data.Text} },
		Route: func(t *machines.Tx[Thing]) string { // those that have to be done somewhere
			if place, ok := strings.CutPrefix(t.Data.Text, "at "); ok {
				return place
			}
			return ""
		},
	}},
	Events: []machines.EventType{
		{Name: "thing.created", Class: machines.ClassState},
		{Name: "thing.added", Class: machines.ClassState},
		{Name: "thing.working", Class: machines.ClassProgress},
		{Name: "thing.worked", Class: machines.ClassState},
		{Name: "thing.broken", Class: machines.ClassError},
		{Name: "thing.closed", Class: machines.ClassState},
	},
	Edges: []machines.Edge[Thing]{
		{From: []string{machines.None, "closed"}, On: "create", To: "open", Emit: []string{"thing.created"}},
		{From: []string{"open"}, On: "add", To: machines.Same, Emit: []string{"thing.added"}, Do: func(t *machines.Tx[Thing]) { t.Data.Sum += machines.Body[AddBody](t).N }},
		{From: []string{"open"}, On: "work", To: "working", Emit: []string{"thing.working"}, Effects: []string{"work"}, Do: func(t *machines.Tx[Thing]) { t.Data.Text = machines.Body[WorkBody](t).How }},
		{From: []string{"open"}, On: "poison", To: machines.Same, Emit: []string{"thing.added"}, Do: func(*machines.Tx[Thing]) { panic("poison") }},
		{From: []string{"open", "working", "broken", "closed"}, On: "idle", To: machines.Same, Noop: true},
		{From: []string{"working"}, On: "done", To: "open", Emit: []string{"thing.worked"}, Do: func(t *machines.Tx[Thing]) { t.Data.Text = machines.Body[WorkBody](t).How }},
		{From: []string{"working"}, On: "failed-work", To: "broken", Emit: []string{"thing.broken"}, Do: func(t *machines.Tx[Thing]) { t.Fail(machines.Body[machines.Failure](t)) }},
		{From: []string{"working"}, On: "late", To: "broken", Emit: []string{"thing.broken"}},
		{From: []string{"open", "broken"}, On: "close", To: "closed", Emit: []string{"thing.closed"}},
	},
})

func ToThing(id, name, body string) publish.Command {
	return publish.Command{Machine: "thing", Key: "default." + id, Name: name, Actor: "test", Body: []byte(body)}
}

// Errands waits for its effect without a deadline.
var Errands = machines.Define(machines.Definition[Thing]{
	Name: "errand", Plural: "errands", Doc: "For tests of effects that are given up.",
	States: []machines.State[Thing]{{Name: "open"}, {Name: "failed", Failed: true, Terminal: true}, {Name: "done", Terminal: true}},
	Inputs: []machines.Command{{Name: "create", Birth: true}, {Name: "done", Report: true, Body: WorkBody{}}, {Name: "fail", Report: true, Body: machines.Failure{}}},
	Effects: []machines.Effect[Thing]{{
		Name: "work", Done: "done", Failed: "fail", Payload: func(*machines.Tx[Thing]) any { return WorkBody{} },
	}},
	Events: []machines.EventType{{Name: "errand.moved", Class: machines.ClassState}},
	Edges: []machines.Edge[Thing]{
		{From: []string{machines.None}, On: "create", To: "open", Emit: []string{"errand.moved"}, Effects: []string{"work"}},
		{From: []string{"open"}, On: "done", To: "done", Emit: []string{"errand.moved"}},
		{From: []string{"open"}, On: "fail", To: "failed", Emit: []string{"errand.moved"}},
	},
})
