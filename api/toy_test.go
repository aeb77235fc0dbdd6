package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/streams"
)

type gadgetSpec struct {
	Name string            `json:"name" minLength:"1" maxLength:"40" example:"lamp"`
	Size int               `json:"size,omitempty" minimum:"0" maximum:"100"`
	Tags map[string]string `json:"tags,omitempty"`
	Hold bool              `json:"hold,omitempty" doc:"Stay CREATING until it is released"`
	Free any               `json:"free,omitempty"`
}

type createGadget struct {
	Spec   gadgetSpec        `json:"spec"`
	Labels map[string]string `json:"labels,omitempty"`
}

type resizeGadget struct {
	Size int `json:"size" minimum:"0" maximum:"100"`
}

type gadgetData struct {
	Spec *gadgetSpec `json:"spec,omitempty"`
}

// gadget is a machine with everything that the API makes something of.
var gadget = machines.Define(machines.Definition[gadgetData]{
	Name: "gadget", Plural: "gadgets", Doc: "A thing for tests.",
	States: []machines.State[gadgetData]{
		{Name: "CREATING", Timeout: &machines.Timeout[gadgetData]{Input: "made", After: func(*gadgetData) time.Duration { return time.Hour }}},
		{Name: "READY"},
		{Name: "BROKEN", Failed: true},
		{Name: "DELETED", Terminal: true},
	},
	Inputs: []machines.Command{
		{Name: "create", Doc: "Begin a life.", Body: createGadget{}, Birth: true},
		{Name: "resize", Doc: "Change the size.", Body: resizeGadget{}},
		{Name: "touch", Doc: "Do nothing that changes."},
		{Name: "shrink", Doc: "Make it small; it must be large."},
		{Name: "delete", Doc: "End it.", Destructive: true},
		{Name: "purge", Doc: "Forget it.", Admin: true, Destructive: true},
		{Name: "mend", Doc: "Make it whole again."},
		{Name: "made", Doc: "It was made.", Report: true},
		{Name: "broke", Doc: "It broke.", Report: true},
	},
	Events: []machines.EventType{
		{Name: "gadget.created", Class: machines.ClassState},
		{Name: "gadget.resized", Class: machines.ClassResource},
		{Name: "gadget.deleted", Class: machines.ClassState},
		{Name: "gadget.broken", Class: machines.ClassState},
	},
	Edges: []machines.Edge[gadgetData]{
		{From: []string{machines.None, "DELETED"}, On: "create", To: "CREATING", Emit: []string{"gadget.created"}, Do: func(t *machines.Tx[gadgetData]) {
			b := machines.Body[createGadget](t)
			t.Data.Spec = &b.Spec
			t.Label(b.Labels)
			t.NextGeneration()
		}},
		{From: []string{"CREATING"}, On: "made", To: "READY"},
		{From: []string{"CREATING"}, On: "broke", To: "BROKEN", Emit: []string{"gadget.broken"}, Do: func(t *machines.Tx[gadgetData]) {
			f := &machines.Failure{Code: "Burnt", Message: "it smells", At: t.Now()}
			t.Fail(f)
			t.Detail("gadget.broken", map[string]any{"error": f})
		}},
		{From: []string{"BROKEN"}, On: "mend", To: "READY", Do: func(t *machines.Tx[gadgetData]) { t.Fail(nil) }},
		{From: []string{"READY"}, On: "resize", To: machines.Same, Emit: []string{"gadget.resized"}, Do: func(t *machines.Tx[gadgetData]) {
			next := *t.Data.Spec
			next.Size = machines.Body[resizeGadget](t).Size
			t.Data.Spec = &next
			t.NextGeneration()
		}},
		{From: []string{"READY"}, On: "touch", To: machines.Same, Noop: true},
		{From: []string{"READY"}, On: "shrink", To: machines.Same, If: &machines.Guard[gadgetData]{Name: "large", Doc: "needs a size of 10", Holds: func(t *machines.Tx[gadgetData]) bool { return t.Data.Spec.Size >= 10 }}},
		{From: []string{"CREATING", "READY"}, On: "delete", To: "DELETED", Emit: []string{"gadget.deleted"}},
		{From: []string{"CREATING", "READY"}, On: "purge", To: "DELETED", Emit: []string{"gadget.deleted"}},
	},
	Views: []machines.View{{Name: "sizes", Doc: "All sizes that it had.", Events: []string{"gadget.resized"}, Project: func(json.RawMessage, string, machines.Event, json.RawMessage) (any, error) { return nil, nil }}},
})

type partData struct {
	Weight int `json:"weight,omitempty"`
}

type addPart struct {
	Weight int `json:"weight,omitempty" minimum:"0"`
}

// part is a machine with a parent.
var part = machines.Define(machines.Definition[partData]{
	Name: "part", Plural: "parts", Parent: "gadget", Doc: "A part of a gadget.",
	States: []machines.State[partData]{{Name: "mounted.tight"}, {Name: "off", Terminal: true}},
	Inputs: []machines.Command{{Name: "mount", Doc: "Add it.", Body: addPart{}, Birth: true}, {Name: "remove", Doc: "Take it off."}},
	Edges: []machines.Edge[partData]{
		{From: []string{machines.None, "off"}, On: "mount", To: "mounted.tight", Do: func(t *machines.Tx[partData]) { t.Data.Weight = machines.Body[addPart](t).Weight }},
		{From: []string{"mounted.tight"}, On: "remove", To: "off"},
	},
})

// engine applies commands one by one and keeps no promise but those that a test of the API needs.
type engine struct {
	js    jetstream.JetStream
	nc    *nats.Conn
	names streams.Names
	mute  func(command string) bool // such commands are taken and never answered
	slow  atomic.Int64              // nanoseconds for each command
	count atomic.Int64              // of the commands that were taken

	mu       sync.Mutex
	taken    int
	last     jetstream.Msg
	entities map[string]*machines.Entity
	revision map[string]uint64
	outcomes map[string]machines.Answer
	hashes   map[string]string
}

func startEngine(t *testing.T, js jetstream.JetStream, names streams.Names) *engine {
	e := &engine{js: js, nc: js.Conn(), names: names, entities: map[string]*machines.Entity{}, revision: map[string]uint64{}, outcomes: map[string]machines.Answer{}, hashes: map[string]string{}}
	cons, err := js.CreateConsumer(t.Context(), names.Stream(streams.CommandStream), jetstream.ConsumerConfig{Durable: "toy", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	cc, err := cons.Consume(e.take)
	require.NoError(t, err)
	t.Cleanup(func() {
		cc.Stop()
		<-cc.Closed()
	})
	return e
}

// hush makes the engine leave commands without an answer.
func (e *engine) hush(mute func(command string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mute = mute
}

// remember makes the engine have answered a command so long ago that its stream has forgotten the id.
func (e *engine) remember(machine, key, id, command, body string, a machines.Answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keep(machine, key, id, a)
	scoped := streams.CommandID(machine, key, id)
	e.outcomes[scoped], e.hashes[scoped] = a, command+" "+body
}

func (e *engine) keep(machine, key, id string, a machines.Answer) {
	kept, _ := json.Marshal(map[string]any{"id": id, "answer": a})
	_, _ = e.js.Publish(context.Background(), "$KV."+e.names.Bucket(streams.IdempotencyBucket)+"."+streams.AnswerKey(machine, key, id), kept)
}

// header returns a header of the last command.
func (e *engine) header(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil {
		return ""
	}
	return streams.Header(e.last.Headers(), name)
}

func (e *engine) take(msg jetstream.Msg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taken++
	e.last = msg
	e.count.Add(1)
	time.Sleep(time.Duration(e.slow.Load()))
	acked := true
	defer func() {
		if acked {
			_ = msg.Ack()
		}
	}()
	addr, err := e.names.ParseStored(msg.Subject())
	if err != nil {
		return
	}
	m := gadget
	switch addr.Machine {
	case part.Name:
		m = part
	case instance.Machine.Name:
		m = instance.Machine
	case preservation.Machine.Name:
		m = preservation.Machine
	}
	if e.mute != nil && e.mute(addr.Last) {
		acked = false // it is not decided, and may come again
		return
	}
	h := msg.Headers()
	id, hash := streams.Header(h, streams.HeaderID), addr.Last+streams.Header(h, streams.HeaderExpect)+" "+string(msg.Data())
	if asked := streams.Header(h, streams.HeaderLookup); asked != "" {
		id = asked
	}
	answer, seen := e.outcomes[id]
	seen = seen && id != ""
	switch {
	case seen && e.hashes[id] != hash:
		answer = machines.Answer{Outcome: machines.Refused, Refusal: &machines.Refusal{Code: machines.CodeKeyReused, Message: "the key was used for another command"}}
	case seen:
		answer.Replayed = true
	default:
		answer = e.apply(m, addr, msg, id)
		e.outcomes[id], e.hashes[id] = answer, hash
		if own := streams.UnscopeID(m.Name, addr.Key, id); own != "" && !streams.MadeUp(own) {
			e.keep(m.Name, addr.Key, own, answer)
		}
	}
	if reply := streams.Header(h, streams.HeaderReply); reply != "" {
		raw, _ := json.Marshal(answer)
		m := &nats.Msg{Subject: reply, Data: raw, Header: nats.Header{}}
		if answer.Replayed {
			m.Header.Set(streams.HeaderReplayed, "true")
		}
		_ = e.nc.PublishMsg(m)
	}
}

func (e *engine) apply(m *machines.Machine, addr streams.Address, msg jetstream.Msg, id string) machines.Answer {
	at := m.Name + "/" + addr.Key
	namespace, parent, name, _ := streams.SplitKey(addr.Key)
	entity := e.entities[at]
	if entity == nil {
		fresh := m.New(namespace, parent, name)
		entity = &fresh
	}
	h := msg.Headers()
	meta, _ := msg.Metadata()
	answer := machines.Answer{Machine: m.Name, Namespace: namespace, ID: name, Parent: parent, Command: addr.Last, CommandID: streams.UnscopeID(m.Name, addr.Key, id), State: entity.State, Version: entity.Version, Revision: e.revision[at], Generation: entity.Generation}
	refuse := func(r *machines.Refusal) machines.Answer {
		answer.Outcome, answer.Refusal = machines.Refused, r
		return answer
	}
	if want := streams.Header(h, streams.HeaderExpect); want != "" {
		if expected, ok := streams.ParseExpected(want); !ok || !expected.Holds(e.revision[at]) {
			return refuse(&machines.Refusal{Code: machines.CodePrecondition, Message: "it is at another revision", State: entity.State})
		}
	}
	in := machines.Input{Command: addr.Last, ID: answer.CommandID, Seq: meta.Sequence.Stream, Time: meta.Timestamp, Actor: streams.Header(h, streams.HeaderActor), Reason: streams.Header(h, streams.HeaderReason), Wait: streams.WaitOf(h), Body: msg.Data()}
	next, out, err := m.Step(*entity, in)
	var refusal *machines.Refusal
	if errors.As(err, &refusal) {
		return refuse(refusal)
	}
	if err != nil {
		answer.Outcome = machines.Dead
		return answer
	}
	if answer.Outcome = out.Result; out.Result == machines.Applied {
		e.commit(m, at, &next, out)
		if d, ok := next.Data.(*gadgetData); ok && next.State == "CREATING" && !d.Spec.Hold {
			go e.report(m, addr.Key, "made")
		}
	}
	stored := e.entities[at]
	if stored == nil {
		return answer
	}
	answer.State, answer.Version, answer.Revision, answer.Generation = stored.State, stored.Version, e.revision[at], stored.Generation
	return answer
}

func (e *engine) commit(m *machines.Machine, at string, next *machines.Entity, out machines.Output) {
	next.Mark, next.LastEvent = 7, 7
	next.Commands, next.Outbox = []machines.Outcome{{ID: "secret-id"}}, out.Messages
	raw, _ := json.Marshal(next)
	ack, err := e.js.Publish(context.Background(), "$KV."+e.names.Bucket(m.Plural)+"."+next.Key(), raw)
	if err != nil {
		return
	}
	e.entities[at], e.revision[at] = next, ack.Sequence
	for _, msg := range out.Messages {
		if msg.Kind != machines.KindEvent {
			continue
		}
		ev := &nats.Msg{Subject: e.names.Event(m.Name, next.Key(), msg.Name), Data: msg.Body, Header: nats.Header{}}
		streams.CloudEvent(ev, msg.ID(m.Name, next.Key()), "/instar", msg.Name, next.Key(), msg.At)
		_, _ = e.js.PublishMsg(context.Background(), ev)
	}
}

// report sends a result, as a worker would.
func (e *engine) report(m *machines.Machine, key, name string) {
	_ = e.nc.Publish(e.names.Command(m.Name, key, name), []byte(`{}`))
}
