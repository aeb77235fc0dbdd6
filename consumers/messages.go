package consumers

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// WriteOf is the write that publishes one message of an entity, in the life that began with a birth.
func WriteOf(names streams.Names, of *machines.Machine, key, birth string, m *machines.Message) (publish.Write, error) {
	id := m.ID(of.Name, key)
	msg := &nats.Msg{Data: m.Body, Header: make(nats.Header, 12)}
	if m.Trace != "" {
		msg.Header[streams.HeaderTrace] = []string{m.Trace}
	}
	switch m.Kind {
	case machines.KindEvent:
		t, ok := of.Event(m.Name)
		if !ok {
			t = machines.EventType{Subject: m.Name, Class: machines.ClassState} // of an older table
		}
		if len(m.Body) > maxEvent {
			msg.Data = fmt.Appendf(nil, `{"version":%d,"truncated":%d}`, m.Version, len(m.Body))
		}
		msg.Subject = names.Event(of.Name, key, t.Subject)
		streams.CloudEvent(msg, id, "/instar/"+of.Name+"/"+key, m.Name, key, m.At)
		if birth != "" {
			msg.Header[streams.HeaderBirth] = []string{birth}
		}
		streams.Keep(msg, streams.LifeOf(string(t.Class)))
		return publish.Write{Stream: names.Stream(streams.EventStream), Msg: msg}, nil
	case machines.KindEffect:
		msg.Subject = names.Effect(of.Name, m.Queue(), key)
		msg.Header[streams.HeaderID] = []string{id}
		if fx, _ := of.Effect(m.Name); fx.Routed {
			msg.Header[streams.HeaderRoute] = []string{cmp.Or(m.Route, "-")}
		}
		return publish.Write{Stream: names.Stream(streams.EffectStream), Msg: msg}, nil
	case machines.KindTimer:
		msg.Subject = names.Timer(of.Name, key, m.Name)
		streams.Schedule(msg, m.At, names.Stored(of.Name, key, machines.CommandElapsed))
		return publish.Write{Stream: names.Stream(streams.CommandStream), Msg: msg}, nil
	}
	return publish.Write{}, fmt.Errorf("the outbox of %s %s holds a message of unknown kind %q", of.Name, key, m.Kind)
}

// Told is the version of an entity that others are told: 0 of one that there has never been. Its own one is then the base that it begins above, that of a restore, and whoever finds
// it in an event or in an answer takes it for that of a value that is lost.
func Told(e *machines.Entity, base uint64) uint64 {
	if e.Version == base && !e.Exists() {
		return 0
	}
	return e.Version
}

// EventVersion is the version of the entity when it emitted an event. That of a refusal has none in its id: its body says where the entity stood.
func EventVersion(machine, key, id string, data []byte) uint64 {
	if version, numbered := streams.VersionOf(machine, key, id); numbered {
		return version
	}
	var body struct {
		Version uint64 `json:"version"`
	}
	_ = json.Unmarshal(data, &body) // what cannot be read is nobody's
	return body.Version
}

// NotExpected refuses a command whose expected revision is none.
func NotExpected() *machines.Refusal {
	return machines.Invalid(machines.FieldError{Field: streams.HeaderExpect, Message: "is no revision, list of revisions or *"})
}
