package orders

import (
	"encoding/json"
	"time"

	"github.com/bcc94042/instar/machines"
)

// Thing is a machine for which it is easy to say what should have come of its commands: a sum, work that is done once at a time, deadlines, and retries.
type Thing struct {
	Sum  int    `json:"sum"`
	Adds int    `json:"adds"`
	How  string `json:"how,omitempty"`
}

// AddBody is what is added.
type AddBody struct {
	N int `json:"n"`
}

// WorkBody says how the work is to be done, or was done.
type WorkBody struct {
	How string `json:"how,omitempty"`
}

// Things is its table.
var Things = machines.Define(machines.Definition[Thing]{
	Name: "thing", Plural: "things", Doc: "Something that is counted.",
	States: []machines.State[Thing]{
		{Name: "open"},
		{Name: "working", Timeout: &machines.Timeout[Thing]{Input: "late", After: func(*Thing) time.Duration { return 8 * time.Second }}},
		{Name: "broken", Failed: true},
		{Name: "closing"},
		{Name: "closed", Terminal: true},
	},
	Inputs: []machines.Command{
		{Name: "create", Birth: true},
		{Name: "add", Body: AddBody{}},
		{Name: "work", Body: WorkBody{}},
		{Name: "poison"},
		{Name: "idle"},
		{Name: "mend"},
		{Name: "close"},
		{Name: "done", Report: true, Body: WorkBody{}},
		{Name: "failed-work", Report: true, Body: machines.Failure{}},
		{Name: "late", Report: true},
		{Name: "released", Report: true},
		{Name: "unreleased", Report: true, Body: machines.Failure{}},
	},
	Effects: []machines.Effect[Thing]{{
		Name: "work", Done: "done", Failed: "failed-work", Timeout: 2 * time.Second,
		Retry:   machines.Retry{Attempts: 3, Base: 200 * time.Millisecond, Cap: time.Second},
		Payload: func(t *machines.Tx[Thing]) any { return WorkBody{How: t.Data.How} },
	}, {
		Name: "release", Done: "released", Failed: "unreleased", Timeout: 2 * time.Second, Retry: machines.Retry{Attempts: 3, Base: 200 * time.Millisecond, Cap: time.Second},
	}},
	Events: []machines.EventType{
		{Name: "thing.created", Class: machines.ClassState},
		{Name: "thing.added", Class: machines.ClassState},
		{Name: "thing.counted", Class: machines.ClassProgress},
		{Name: "thing.working", Class: machines.ClassProgress},
		{Name: "thing.worked", Class: machines.ClassState},
		{Name: "thing.broken", Class: machines.ClassError},
		{Name: "thing.closing", Class: machines.ClassProgress},
		{Name: "thing.closed", Class: machines.ClassState},
	},
	Edges: []machines.Edge[Thing]{
		{From: []string{machines.None, "closed"}, On: "create", To: "open", Emit: []string{"thing.created"}, Do: func(t *machines.Tx[Thing]) { *t.Data = Thing{} }},
		{From: []string{"open", "working"}, On: "add", To: machines.Same, Emit: []string{"thing.added", "thing.counted"}, Do: add},
		{From: []string{"open"}, On: "work", To: "working", Emit: []string{"thing.working"}, Effects: []string{"work"}, Do: func(t *machines.Tx[Thing]) { t.Data.How = machines.Body[WorkBody](t).How }},
		{From: []string{"open"}, On: "poison", To: machines.Same, Emit: []string{"thing.added"}, Do: func(*machines.Tx[Thing]) { panic("poison") }},
		{From: []string{"open", "working", "broken"}, On: "idle", To: machines.Same, Noop: true},
		{From: []string{"working"}, On: "done", To: "open", Emit: []string{"thing.worked"}},
		{From: []string{"working"}, On: "failed-work", To: "broken", Emit: []string{"thing.broken"}, Do: func(t *machines.Tx[Thing]) { t.Fail(machines.Body[machines.Failure](t)) }},
		{From: []string{"working"}, On: "late", To: "broken", Emit: []string{"thing.broken"}},
		{From: []string{"broken"}, On: "mend", To: "open", Emit: []string{"thing.worked"}},
		{From: []string{"open", "broken"}, On: "close", To: "closing", Emit: []string{"thing.closing"}, Effects: []string{"release"}},
		{From: []string{"closing"}, On: "released", To: "closed", Emit: []string{"thing.closed"}},
		{From: []string{"closing"}, On: "unreleased", To: "broken", Emit: []string{"thing.broken"}, Do: func(t *machines.Tx[Thing]) { t.Fail(machines.Body[machines.Failure](t)) }},
	},
	Views: []machines.View{{
		Name: "sums", Doc: "How often something was added, and counted.", Events: []string{"thing.added", "thing.counted"}, Project: func(previous json.RawMessage, _ string, _ machines.Event, _ json.RawMessage) (any, error) {
			n := 0
			if len(previous) > 0 {
				if err := json.Unmarshal(previous, &n); err != nil {
					return nil, err
				}
			}
			return n + 1, nil
		},
	}},
})

func add(t *machines.Tx[Thing]) {
	n := machines.Body[AddBody](t).N
	t.Data.Sum, t.Data.Adds = t.Data.Sum+n, t.Data.Adds+1
	t.Detail("thing.added", map[string]any{"n": n, "sum": t.Data.Sum})
}
