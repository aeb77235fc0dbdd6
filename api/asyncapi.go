package api

import (
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

type doc = map[string]any

// asyncAPI describes what goes over NATS, from the same tables as the HTTP operations. AsyncAPI has no binding for
// JetStream, KV or micro services, so that their facts stand in x-nats-* members and not in bindings.
func (s *Server) asyncAPI() doc {
	a := &async{s: s, channels: doc{}, operations: doc{}, messages: doc{}}
	for _, m := range s.o.Machines {
		a.machine(m)
	}
	a.requests()
	a.discovery()
	a.letters()
	schemas := doc{}
	for name, schema := range s.registry().Map() {
		schemas[name] = schema
	}
	info := s.api.OpenAPI().Info
	return doc{
		"asyncapi": "3.1.0", "id": "urn:instar", "defaultContentType": "application/json",
		"info":     doc{"title": info.Title + " over NATS", "version": info.Version, "description": "Commands, events and effects of every machine. Anyone with the permission may publish a command and subscribe to events with the nats CLI."},
		"servers":  doc{"nats": doc{"host": "{host}", "protocol": "nats", "variables": doc{"host": doc{"default": "localhost:4222"}}}},
		"channels": a.channels, "operations": a.operations,
		"components": doc{"messages": a.messages, "schemas": schemas},
	}
}

type async struct {
	s                              *Server
	channels, operations, messages doc
}

// channel adds a channel, its one message and what is done with it.
func (a *async) channel(name, action, summary, address string, params doc, message, facts doc) {
	a.messages[name] = message
	channel := doc{"address": address, "messages": doc{name: doc{"$ref": "#/components/messages/" + name}}, "description": summary}
	for k, v := range facts {
		channel[k] = v
	}
	if len(params) > 0 {
		channel["parameters"] = params
	}
	a.channels[name] = channel
	a.operations[name] = doc{
		"action": action, "summary": summary, "channel": doc{"$ref": "#/channels/" + name},
		"messages": []doc{{"$ref": "#/channels/" + name + "/messages/" + name}},
	}
}

// address writes the address of a key in the way of AsyncAPI.
func address(m *machines.Machine) (key string, params doc) {
	params = doc{
		"namespace": doc{"description": "A DNS label", "default": defaultNamespace},
		"id":        doc{"description": "A DNS label: the name of the " + m.Name},
	}
	if m.Parent == "" {
		return "{namespace}.{id}", params
	}
	params[m.Parent] = doc{"description": "A DNS label: the name of the " + m.Parent}
	return "{namespace}.{" + m.Parent + "}.{id}", params
}

func (a *async) machine(m *machines.Machine) {
	key, params := address(m)
	names := a.s.o.Names
	for _, c := range m.Commands() {
		a.channel(m.Name+"."+c.Name, "receive", c.Doc, names.Command(m.Name, key, c.Name), params,
			doc{"name": c.Name, "title": c.Doc, "payload": a.payload(c.Body), "headers": commandHeaders()},
			doc{
				"x-nats-stream": names.Stream(streams.CommandStream), "x-nats-stored-as": strings.Replace(names.Stored(m.Name, key, c.Name), ".in."+partitionOf(names, m, key)+".", ".in.{partition}.", 1),
				"x-nats-answer": "to the message's reply subject, or to the header Instar-Reply",
			})
	}
	for _, e := range m.Events {
		a.channel(m.Name+"."+e.Name, "send", e.Doc, names.Event(m.Name, key, e.Subject), params,
			doc{"name": e.Name, "title": e.Doc, "payload": a.schema(reflect.TypeFor[machines.Event]()), "headers": eventHeaders(e)},
			doc{"x-nats-stream": names.Stream(streams.EventStream), "x-class": e.Class, "x-kept": streams.LifeOf(string(e.Class)).String()})
	}
	a.effects(m, key, params)
	bucket := names.Bucket(m.Plural)
	a.channel(m.Name+".state", "send", "The newest value of every "+m.Name+": a revision of the bucket", "$KV."+bucket+"."+key, params,
		doc{"name": m.Name, "title": m.Doc, "payload": a.s.entitySchema(m)},
		doc{"x-nats-bucket": bucket, "x-nats-stream": "KV_" + bucket})
}

// effects are the tasks of workers, and what they send when one is done.
func (a *async) effects(m *machines.Machine, key string, params doc) {
	names := a.s.o.Names
	result := func(name, about string, payload any) {
		a.channel(m.Name+"."+name, "receive", about, names.Command(m.Name, key, name), params,
			doc{"name": name, "title": about, "payload": payload, "headers": commandHeaders()}, doc{"x-nats-stream": names.Stream(streams.CommandStream)})
	}
	done := map[string]bool{}
	for _, e := range m.Effects {
		a.channel(m.Name+".effect."+e.Name, "send", e.Doc, names.Effect(m.Name, e.Name, key), params,
			doc{"name": e.Name, "title": e.Doc, "payload": a.with(a.schema(reflect.TypeFor[machines.Task]()), "data", a.typed(e.Task))},
			doc{
				"x-nats-stream": names.Stream(streams.EffectStream), "x-nats-consumer": streams.WorkerName(m.Name, e.Name), "x-nats-consumer-filter": names.Effects(m.Name, e.Name),
				"x-done": e.Done, "x-failed": e.Failed,
			})
		if c, ok := m.Input(e.Done); ok && !done[e.Done] {
			done[e.Done] = true
			result(e.Done, c.Doc, doc{"type": "object", "properties": doc{
				"attempt": doc{"type": "string", "description": "The attempt of the task that this answers; without one it is news that nobody asked for"}, "data": a.typed(c.Body),
			}})
		}
	}
	if len(m.Effects) > 0 {
		result(machines.CommandFailed, "A task could not be done: it is tried again, or given up.", a.schema(reflect.TypeFor[machines.EffectFailed]()))
	}
}

// with is a schema whose member is of a narrower type.
func (a *async) with(general *huma.Schema, member string, narrower any) any {
	return doc{"allOf": []any{general, doc{"type": "object", "properties": doc{member: narrower}}}}
}

// typed is the schema of a value's type; that of nil takes anything.
func (a *async) typed(value any) any {
	if value == nil {
		return doc{}
	}
	return a.schema(reflect.TypeOf(value))
}

func partitionOf(names streams.Names, m *machines.Machine, key string) string {
	_, rest, _ := strings.Cut(names.Stored(m.Name, key, "x"), ".in.")
	partition, _, _ := strings.Cut(rest, ".")
	return partition
}

// requests are the endpoints of the micro service.
func (a *async) requests() {
	names := a.s.o.Names
	answer := a.schema(reflect.TypeFor[machines.Answer]())
	for _, e := range []struct{ name, summary, address string }{
		{"api.cmd", "Send a command; the engine answers", names.API("cmd", "{machine}", "{key}", "{command}")},
		{"api.get", "Read one entity", names.API("get", "{machine}", "{key}")},
		{"api.list", "List entities; the body is a query", names.API("list", "{machine}")},
	} {
		params := doc{"machine": doc{"description": "The name of a machine"}}
		for _, p := range []string{"key", "command"} {
			if strings.Contains(e.address, "{"+p+"}") {
				params[p] = doc{"description": map[string]string{"key": "<namespace>.<id>, or <namespace>.<parent>.<id>", "command": "A command of the machine"}[p]}
			}
		}
		a.channel(e.name, "receive", e.summary, e.address, params, doc{"name": e.name, "payload": doc{}}, doc{"x-nats-micro-service": serviceName, "x-nats-queue": queueGroup})
	}
	a.operations["api.cmd"].(doc)["reply"] = doc{"address": doc{"location": "$message.header#/reply"}}
	a.messages["answer"] = doc{"name": "answer", "title": "What the engine has decided", "payload": answer}
}

func (a *async) letters() {
	names := a.s.o.Names
	a.channel("dead", "send", "A message that no code could handle", names.Dead("{consumer}", "{machine}", "{key}"),
		doc{"consumer": doc{"description": "Who gave it up"}, "machine": doc{"description": "The name of a machine, or unknown"}, "key": doc{"description": "The key of the entity"}},
		doc{"name": "dead", "payload": doc{}}, doc{"x-nats-stream": names.Stream(streams.DeadStream)})
}

func (a *async) schema(t reflect.Type) *huma.Schema { return a.s.registry().Schema(t, true, "") }

func (a *async) payload(body any) any {
	if body == nil {
		return doc{"type": "object", "maxProperties": 0}
	}
	return a.schema(reflect.TypeOf(body))
}

func commandHeaders() doc {
	text := func(about string) doc { return doc{"type": "string", "description": about} }
	return doc{"type": "object", "properties": doc{
		streams.HeaderID:     text("The idempotency key: <machine>/<key>/<yours>"),
		streams.HeaderActor:  text("Who asks"),
		streams.HeaderReason: text("Why"),
		streams.HeaderWait:   text("How long the sender waits for what comes of it, such as 30s; events may tell, nothing depends on it"),
		streams.HeaderExpect: text("Refuse unless the entity is at this revision, or one of several with commas between them; * is any that there is"),
		streams.HeaderReply:  text("Where the answer goes"),
		streams.HeaderTrace:  text("W3C trace context"),
	}}
}

func eventHeaders(e machines.EventType) doc {
	fixed := func(v string) doc { return doc{"type": "string", "const": v} }
	return doc{"type": "object", "properties": doc{
		"ce-specversion": fixed("1.0"), "ce-datacontenttype": fixed("application/json"), "content-type": fixed("application/json"), "ce-type": fixed(e.Name), "ce-id": doc{"type": "string"}, "ce-source": doc{"type": "string"},
		"ce-subject": doc{"type": "string"}, "ce-time": doc{"type": "string", "format": "date-time"}, streams.HeaderID: doc{"type": "string"},
	}}
}
