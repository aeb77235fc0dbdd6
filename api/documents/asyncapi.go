package documents

// The AsyncAPI document: channels for the commands, events, effects and bucket of every machine, for requests to the micro
// service, and for dead letters. Set.Publish (publish.go) calls asyncAPI, which goes through the tables of the machines;
// other packages add their channels by what is passed to Publish. Schemas are those of the OpenAPI document.

import (
	"maps"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/rpc"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Object is a JSON object.
type Object = map[string]any

// asyncAPI describes what goes over NATS, from the same tables as the HTTP operations. AsyncAPI has no binding for
// JetStream, KV or micro services, so that their facts stand in x-nats-* members and not in bindings.
func (s *Set) asyncAPI(more []func(*Async)) Object {
	a := &Async{s: s, channels: Object{}, Operations: Object{}, Messages: Object{}}
	for _, m := range s.machines.All() {
		a.machine(m)
	}
	a.requests()
	for _, add := range more {
		add(a)
	}
	a.letters()
	schemas := Object{}
	for name, schema := range s.router.Registry().Map() {
		schemas[name] = schema
	}
	info := s.router.API.OpenAPI().Info
	return Object{
		"asyncapi": "3.1.0", "id": "urn:instar", "defaultContentType": "application/json",
		"info":     Object{"title": info.Title + " over NATS", "version": info.Version, "description": "Commands, events and effects of every machine. Anyone with the permission may publish a command and subscribe to events with the nats CLI."},
		"servers":  Object{"nats": Object{"host": "{host}", "protocol": "nats", "variables": Object{"host": Object{"default": "localhost:4222"}}}},
		"channels": a.channels, "operations": a.Operations,
		"components": Object{"messages": a.Messages, "schemas": schemas},
	}
}

// Async is an AsyncAPI document in the making.
type Async struct {
	s                              *Set
	channels, Operations, Messages Object
}

// Channel adds a channel, its one message and what is done with it.
func (a *Async) Channel(name, action, summary, address string, params Object, message, facts Object) {
	a.Messages[name] = message
	channel := Object{"address": address, "messages": Object{name: Object{"$ref": "#/components/messages/" + name}}, "description": summary}
	for k, v := range facts {
		channel[k] = v
	}
	if len(params) > 0 {
		channel["parameters"] = params
	}
	a.channels[name] = channel
	a.Operations[name] = Object{
		"action": action, "summary": summary, "channel": Object{"$ref": "#/channels/" + name},
		"messages": []Object{{"$ref": "#/channels/" + name + "/messages/" + name}},
	}
}

// address writes the address of a key in the way of AsyncAPI.
func address(m *machines.Machine) (key string, params Object) {
	params = Object{
		"namespace": Object{"description": "A DNS label", "default": auth.DefaultNamespace},
		"id":        Object{"description": "A DNS label: the name of the " + m.Name},
	}
	if m.Parent == "" {
		return "{namespace}.{id}", params
	}
	params[m.Parent] = Object{"description": "A DNS label: the name of the " + m.Parent}
	return "{namespace}.{" + m.Parent + "}.{id}", params
}

func (a *Async) machine(m *machines.Machine) {
	key, params := address(m)
	names := a.s.names
	for _, c := range m.Commands() {
		a.Channel(m.Name+"."+c.Name, "receive", c.Doc, names.Command(m.Name, key, c.Name), params,
			Object{"name": c.Name, "title": c.Doc, "payload": a.payload(c.Body), "headers": commandHeaders()},
			Object{
				"x-nats-stream": names.Stream(streams.CommandStream), "x-nats-stored-as": strings.Replace(names.Stored(m.Name, key, c.Name), ".in."+partitionOf(names, m, key)+".", ".in.{partition}.", 1),
				"x-nats-answer": "to the message's reply subject, or to the header Instar-Reply",
			})
	}
	for _, e := range m.Events {
		a.Channel(m.Name+"."+e.Name, "send", e.Doc, names.Event(m.Name, key, e.Subject), params,
			Object{"name": e.Name, "title": e.Doc, "payload": a.Schema(reflect.TypeFor[machines.Event]()), "headers": eventHeaders(e)},
			Object{"x-nats-stream": names.Stream(streams.EventStream), "x-class": e.Class, "x-kept": streams.LifeOf(string(e.Class)).String()})
	}
	a.effects(m, key, params)
	bucket := names.Bucket(m.Plural)
	a.Channel(m.Name+".state", "send", "The newest value of every "+m.Name+": a revision of the bucket", streams.BucketSubject(bucket, key), params,
		Object{"name": m.Name, "title": m.Doc, "payload": a.Entity(m)},
		Object{"x-nats-bucket": bucket, "x-nats-stream": streams.BucketStream(bucket)})
}

// effects are the tasks of workers, and what they send when one is done.
func (a *Async) effects(m *machines.Machine, key string, params Object) {
	names := a.s.names
	result := func(name, about string, payload any) {
		a.Channel(m.Name+"."+name, "receive", about, names.Command(m.Name, key, name), params,
			Object{"name": name, "title": about, "payload": payload, "headers": commandHeaders()}, Object{"x-nats-stream": names.Stream(streams.CommandStream)})
	}
	done := map[string]bool{}
	for _, e := range m.Effects {
		channel := func(name, about, queue string, params Object) {
			a.Channel(name, "send", about, names.Effect(m.Name, queue, key), params,
				Object{"name": e.Name, "title": e.Doc, "payload": a.with(a.Schema(reflect.TypeFor[machines.Task]()), "data", a.typed(e.Task))},
				Object{
					"x-nats-stream": names.Stream(streams.EffectStream), "x-nats-consumer": streams.WorkerName(m.Name, queue), "x-nats-consumer-filter": names.Effects(m.Name, queue),
					"x-done": e.Done, "x-failed": e.Failed,
				})
		}
		channel(m.Name+".effect."+e.Name, e.Doc, e.Name, params)
		if e.Routed {
			routed := maps.Clone(params)
			routed["route"] = Object{"description": "A DNS label: the queue that the data of the " + m.Name + " names"}
			channel(m.Name+".effect."+e.Name+".routed", e.Doc+" From a queue of its own.", machines.Queue(e.Name, "{route}"), routed)
		}
		if c, ok := m.Input(e.Done); ok && !done[e.Done] {
			done[e.Done] = true
			result(e.Done, c.Doc, Object{"type": "object", "properties": Object{
				"attempt": Object{"type": "string", "description": "The attempt of the task that this answers; without one it is news that nobody asked for"}, "data": a.typed(c.Body),
			}})
		}
	}
	if len(m.Effects) > 0 {
		result(machines.CommandFailed, "A task could not be done: it is tried again, or given up.", a.Schema(reflect.TypeFor[machines.EffectFailed]()))
	}
}

// with is a schema whose member is of a narrower type.
func (a *Async) with(general *huma.Schema, member string, narrower any) any {
	return Object{"allOf": []any{general, Object{"type": "object", "properties": Object{member: narrower}}}}
}

// typed is the schema of a value's type; that of nil takes anything.
func (a *Async) typed(value any) any {
	if value == nil {
		return Object{}
	}
	return a.Schema(reflect.TypeOf(value))
}

func partitionOf(names streams.Names, m *machines.Machine, key string) string {
	_, rest, _ := strings.Cut(names.Stored(m.Name, key, "x"), ".in.")
	partition, _, _ := strings.Cut(rest, ".")
	return partition
}

// requests are the endpoints of the micro service.
func (a *Async) requests() {
	names := a.s.names
	answer := a.Schema(reflect.TypeFor[machines.Answer]())
	for _, e := range []struct{ name, summary, address string }{
		{"api.cmd", "Send a command; the engine answers", names.API("cmd", "{machine}", "{key}", "{command}")},
		{"api.get", "Read one entity", names.API("get", "{machine}", "{key}")},
		{"api.list", "List entities; the body is a query", names.API("list", "{machine}")},
	} {
		params := Object{"machine": Object{"description": "The name of a machine"}}
		for _, p := range []string{"key", "command"} {
			if strings.Contains(e.address, "{"+p+"}") {
				params[p] = Object{"description": map[string]string{"key": "<namespace>.<id>, or <namespace>.<parent>.<id>", "command": "A command of the machine"}[p]}
			}
		}
		a.Channel(e.name, "receive", e.summary, e.address, params, Object{"name": e.name, "payload": Object{}}, Object{"x-nats-micro-service": rpc.ServiceName, "x-nats-queue": rpc.QueueGroup})
	}
	a.Operations["api.cmd"].(Object)["reply"] = Object{"address": Object{"location": "$message.header#/reply"}}
	a.Messages["answer"] = Object{"name": "answer", "title": "What the engine has decided", "payload": answer}
}

func (a *Async) letters() {
	names := a.s.names
	a.Channel("dead", "send", "A message that no code could handle", names.Dead("{consumer}", "{machine}", "{key}"),
		Object{"consumer": Object{"description": "Who gave it up"}, "machine": Object{"description": "The name of a machine, or unknown"}, "key": Object{"description": "The key of the entity"}},
		Object{"name": "dead", "payload": Object{}}, Object{"x-nats-stream": names.Stream(streams.DeadStream)})
	a.Channel("settled", "send", "What somebody has done with a dead letter, and why", names.Event(streams.DeadStream, "{machine}.{key}", "{action}"),
		Object{"machine": Object{"description": "That of the letter, or unknown"}, "key": Object{"description": "The key of the entity, or unknown.unknown"}, "action": Object{"description": "redriven, edited or dropped"}},
		Object{"name": "settled", "payload": Object{}}, Object{"x-nats-stream": names.Stream(streams.EventStream), "x-kept": streams.LifeOf("state").String()})
}

// Schema is the schema of a type, the same as in the OpenAPI document.
func (a *Async) Schema(t reflect.Type) *huma.Schema { return a.s.router.Registry().Schema(t, true, "") }

// Entity is the schema of an entity of a machine.
func (a *Async) Entity(m *machines.Machine) *huma.Schema { return entities.EntitySchema(a.s.router, m) }

func (a *Async) payload(body any) any {
	if body == nil {
		return Object{"type": "object", "maxProperties": 0}
	}
	return a.Schema(reflect.TypeOf(body))
}

func commandHeaders() Object {
	text := func(about string) Object { return Object{"type": "string", "description": about} }
	return Object{"type": "object", "properties": Object{
		streams.HeaderID:     text("The idempotency key: <machine>/<key>/<yours>"),
		streams.HeaderActor:  text("Who asks"),
		streams.HeaderReason: text("Why"),
		streams.HeaderWait:   text("How long the sender waits for what comes of it, such as 30s; events may tell, nothing depends on it"),
		streams.HeaderExpect: text("Refuse unless the entity is at this revision, or one of several with commas between them; * is any that there is"),
		streams.HeaderReply:  text("Where the answer goes"),
		streams.HeaderTrace:  text("W3C trace context"),
	}}
}

func eventHeaders(e machines.EventType) Object {
	fixed := func(v string) Object { return Object{"type": "string", "const": v} }
	return Object{"type": "object", "properties": Object{
		"ce-specversion": fixed("1.0"), "ce-datacontenttype": fixed("application/json"), "content-type": fixed("application/json"), "ce-type": fixed(e.Name), "ce-id": Object{"type": "string"}, "ce-source": Object{"type": "string"},
		"ce-subject": Object{"type": "string"}, "ce-time": Object{"type": "string", "format": "date-time"}, streams.HeaderID: Object{"type": "string"},
	}}
}
