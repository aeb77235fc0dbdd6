package transcript_test

import (
	"fmt"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/transcript"
)

// What follows an input is indented; it is written anew each time. [transcript.Run] compares it with a file.
func ExamplePlay() {
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
	fmt.Print(transcript.Play(m, "# a day\nbuild\n+10s\nopen\nclose\n"))
	// Output:
	// # a day
	// build
	//     (none) -> open v1 g0 on build
	//       event door.moved
	//       allowed: close
	// +10s
	// open
	//     refused transition-not-allowed: cannot open door default.web while it is open
	//       allowed: close
	// close
	//     open -> closed v2 g0 on close
	//       event door.moved
	//       allowed: open
}
