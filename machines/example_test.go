package machines_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/diagram"
)

func ExampleDefine() {
	type door struct{}
	m := machines.Define(machines.Definition[door]{
		Name: "door", Plural: "doors",
		States: []machines.State[door]{{Name: "open"}, {Name: "closed"}},
		Inputs: []machines.Command{{Name: "build", Birth: true}, {Name: "close"}, {Name: "open"}},
		Events: []machines.EventType{{Name: "door.moved", Class: machines.ClassState}},
		Edges: []machines.Edge[door]{
			{From: []string{machines.None}, On: "build", To: "open", Emit: []string{"door.moved"}},
			{From: []string{"open"}, On: "close", To: "closed", Emit: []string{"door.moved"}},
			{From: []string{"closed"}, On: "open", To: "open", Emit: []string{"door.moved"}},
		},
	})
	fmt.Print(diagram.Mermaid(m))
	// Output:
	// stateDiagram-v2
	//     state "open" as open
	//     state "closed" as closed
	//     [*] --> open: build
	//     open --> closed: close
	//     closed --> open: open
}

func ExampleMachine_Step() {
	m := machines.Define(definition())
	at := time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)
	lamp, out, _ := m.Step(m.New("default", "", "desk"), machines.Input{Command: "buy", Time: at, Body: json.RawMessage(`{"watts":40}`)})
	fmt.Println(lamp.State, lamp.Version)
	for _, msg := range out.Messages {
		fmt.Println(msg.Kind, msg.Name)
	}

	_, _, err := m.Step(lamp, machines.Input{Command: "dim", Time: at})
	var refusal *machines.Refusal
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Message, refusal.Allowed)
	}
	// Output:
	// warming 1
	// event lamp.bought
	// effect heat
	// timer deadline
	// cannot dim lamp default.desk while it is warming [blink swap throw]
}

func ExampleHash() {
	a, _ := machines.Hash(map[string]any{"image": "hello", "port": 80})
	b, _ := machines.Hash(json.RawMessage(`{"port": 80, "image": "hello"}`))
	fmt.Println(a == b)
	// Output: true
}
