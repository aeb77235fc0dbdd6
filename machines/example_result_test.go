package machines_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bcc94042/instar/machines"
)

// A result is taken under the attempt that the entity waits for. One of another attempt is refused as stale.
func ExampleReport() {
	m := machines.Define(parcels())
	e := after(m, pack(10), machines.Input{Command: "send"})
	for _, attempt := range []string{"bring-1-1", e.Effects["bring"].ID} {
		body, _ := json.Marshal(machines.Report{Attempt: attempt})
		next, _, err := m.Step(e, machines.Input{Command: "brought", Time: noon, Body: body})
		fmt.Println(next.State, err)
	}
	// Output:
	// underway brought answers attempt "bring-1-1", which is not under way any more
	// there <nil>
}

// A failure that may pass is tried again without leaving the state; the failure edge is taken after the last try.
func ExampleEffectFailed() {
	m := machines.Define(parcels()) // two tries
	e := after(m, pack(10), machines.Input{Command: "send"})
	failed := func(retryable bool) {
		body, _ := json.Marshal(machines.EffectFailed{Effect: "bring", Attempt: e.Effects["bring"].ID, Failure: machines.Failure{
			Code: "road-closed", Message: "snow", Retryable: retryable, RetryAfter: 5 * time.Minute, // more than the backoff
		}})
		e, _, _ = m.Step(e, machines.Input{Command: machines.CommandFailed, Time: noon, Body: body})
	}
	failed(true)
	fmt.Println(e.State, e.LastError, "next try at", e.Effects["bring"].NextTry.Format(time.TimeOnly))
	timer := e.Timers["retry-bring"]
	body, _ := json.Marshal(machines.Elapsed{Timer: "retry-bring", Armed: timer.Armed})
	e, _, _ = m.Step(e, machines.Input{Command: machines.CommandElapsed, Time: timer.At, Body: body})
	fmt.Println(e.State, "try", e.Effects["bring"].Try)
	failed(true)
	fmt.Println(e.State)
	// Output:
	// underway road-closed: snow next try at 12:05:00
	// underway try 2
	// lost
}

// What a table leaves out has a default.
func ExampleRetry() {
	d := parcels()
	d.Effects[0].Retry = machines.Retry{}
	bring, _ := machines.Define(d).Effect("bring")
	fmt.Println(bring.Retry.Attempts, "tries,", bring.Timeout, "each")
	fmt.Println("waits up to", bring.Retry.Base, "times", bring.Retry.Factor, "for each try, at most", bring.Retry.Cap)
	// Output:
	// 10 tries, 1m0s each
	// waits up to 500ms times 2 for each try, at most 1m0s
}

// Emit adds events to those of the edge, behind them; Detail gives data to those of the edge itself.
func ExampleTx_Emit() {
	d := parcels()
	d.Edges[0].Do = func(t *machines.Tx[parcel]) {
		t.Detail("parcel.moved", "to the scale")
		t.Emit("parcel.moved", "to the shelf")
	}
	m := machines.Define(d)
	_, out, _ := m.Step(m.New("default", "", "p1"), machines.Input{Command: "pack", Time: noon})
	for _, msg := range out.Messages {
		var event machines.Event
		_ = json.Unmarshal(msg.Body, &event)
		fmt.Println(msg.ID(m.Name, "default.p1"), event.Data)
	}
	// Output:
	// parcel/default.p1/1/0 to the scale
	// parcel/default.p1/1/1 to the shelf
}

// The time of a condition says since when its status holds: another reason does not move it.
func ExampleTx_Condition() {
	d := parcels()
	d.Edges[0].Do = func(t *machines.Tx[parcel]) { t.Condition("Sealed", machines.True, "Tape", "") }
	d.Edges[1].Do = func(t *machines.Tx[parcel]) { t.Condition("Sealed", machines.True, "Glue", "") }
	m := machines.Define(d)
	e, _, _ := m.Step(after(m, pack(10)), machines.Input{Command: "weigh", Time: noon.Add(time.Hour)})
	sealed, _ := e.Condition("Sealed")
	fmt.Println(sealed.Status, sealed.Reason, "since", sealed.LastTransitionTime.Format(time.TimeOnly))
	// Output: True Glue since 12:00:00
}

// The deduplication id of a message follows from the step, so that publishing it again changes nothing.
func ExampleMessage_ID() {
	event := machines.Message{Kind: machines.KindEvent, Version: 7, N: 1}
	fmt.Println(event.ID("parcel", "default.p1"))
	// Output: parcel/default.p1/7/1
}

// What an entity waits for: what has to be published again when a stream has lost it.
func ExampleMachine_Pending() {
	m := machines.Define(parcels())
	for _, msg := range m.Pending(after(m, pack(10), machines.Input{Command: "send"})) {
		fmt.Println(msg.Kind, msg.Name, msg.At.Format(time.TimeOnly))
	}
	// Output:
	// effect bring 12:00:00
	// timer deadline 13:00:00
}

// A view folds the events of one entity into a value of its own; nil leaves it as it is.
func ExampleProject() {
	var moves machines.Project = func(previous json.RawMessage, _ string, e machines.Event, _ json.RawMessage) (any, error) {
		var places []string
		if previous != nil {
			if err := json.Unmarshal(previous, &places); err != nil {
				return nil, err
			}
		}
		if e.From == e.To {
			return nil, nil
		}
		return append(places, e.To), nil
	}
	d := parcels()
	d.Views = []machines.View{{Name: "moves", Events: []string{"parcel.moved"}, Project: moves}}
	m := machines.Define(d)
	next, err := m.Views[0].Project(json.RawMessage(`["packed"]`), "parcel.moved", machines.Event{From: "packed", To: "underway"}, nil)
	fmt.Println(m.BucketOf(m.Views[0]), next, err)
	// Output: parcels_moves [packed underway] <nil>
}

// A field that was renamed needs an upcast. A value is brought up to the table's schema when it is read.
func ExampleUpcast() {
	d := parcels()
	d.Upcasts = []machines.Upcast{func(value map[string]any) error { // from schema 1 to 2
		data, _ := value["data"].(map[string]any)
		data["grams"] = data["weight"]
		delete(data, "weight")
		return nil
	}}
	m := machines.Define(d)
	e, err := m.Decode([]byte(`{"schema": 1, "machine": "parcel", "namespace": "default", "id": "p1", "state": "packed", "version": 1, "data": {"weight": 40}}`))
	fmt.Println(e.Schema, e.Data.(*parcel).Grams, err)
	// Output: 2 40 <nil>
}

// A value of a newer program is refused, not cut down to what this one knows.
func ExampleMachine_Decode() {
	_, err := machines.Define(parcels()).Decode([]byte(`{"schema": 2, "machine": "parcel", "namespace": "default", "id": "p1", "state": "packed"}`))
	fmt.Println(err)
	// Output: machines: stored parcel default.p1 has schema 2, this program knows up to 1: run a newer one
}

// Findings collect all that is wrong, so that a user is told once.
func ExampleFindings() {
	f := machines.Findings{Under: "spec."}
	f.Between("port", 70000, 1, 65535)
	f.Add("image", "must not be empty")
	fmt.Println(f.Refusal().Message)

	f = machines.Findings{}
	fmt.Println(f.Refusal() == nil)
	// Output:
	// spec.port: must be from 1 to 65535; spec.image: must not be empty
	// true
}

// A refusal is an answer: it tells what is possible instead, and sending the same again does not help.
func ExampleRefusal() {
	m := machines.Define(parcels())
	_, _, err := m.Step(m.New("default", "", "p1"), machines.Input{Command: "send", Time: noon})
	var refusal *machines.Refusal
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Code, refusal.Allowed)
		fmt.Println(refusal.Message)
	}
	// Output:
	// not-found [pack]
	// parcel default.p1 does not exist
}

// Keys have two parts, or three where a machine has a parent.
func ExampleKey() {
	fmt.Println(machines.Key("default", "", "web"), machines.Key("default", "web", "i-1"))
	// Output: default.web default.web.i-1
}

// Names and namespaces are DNS labels: lower case, digits and hyphens within, at most 63.
func ExampleIsLabel() {
	for _, name := range []string{"web-1", "Web", "web.shop", "-web", ""} {
		fmt.Printf("%q %v\n", name, machines.IsLabel(name))
	}
	// Output:
	// "web-1" true
	// "Web" false
	// "web.shop" false
	// "-web" false
	// "" false
}
