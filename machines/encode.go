package machines

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/bcc94042/instar/internal/jsonwrite"
)

// What is written for every transition is written by hand here: encoding/json costs a third of the engine's time. The
// result is what encoding/json would write for the same value, but for the escaping of <, > and &; a test holds the
// two against each other.

// AppendJSON appends the stored form of the entity.
func (e *Entity) AppendJSON(b []byte) (_ []byte, err error) {
	at := len(b)
	b = append(b, `{"schema":`...)
	b = strconv.AppendInt(b, int64(e.Schema), 10)
	b = appendMember(b, `,"machine":`, e.Machine)
	b = appendMember(b, `,"namespace":`, e.Namespace)
	b = appendMember(b, `,"id":`, e.ID)
	b = appendOptional(b, `,"parent":`, e.Parent)
	b = appendMember(b, `,"state":`, e.State)
	b = appendUint(b, `,"version":`, e.Version)
	b = appendUint(b, `,"generation":`, e.Generation)
	b = appendTime(b, `,"since":`, e.Since)
	b = appendTime(b, `,"createdAt":`, e.CreatedAt)
	b = appendOptional(b, `,"birth":`, e.Birth)
	b = appendTime(b, `,"updatedAt":`, e.UpdatedAt)
	if len(e.Labels) > 0 {
		b = jsonwrite.Texts(append(b, `,"labels":`...), e.Labels)
	}
	if b, err = appendAny(b, `,"data":`, e.Data, e.Data != nil); err != nil {
		return nil, err
	}
	b = appendList(b, `,"conditions":`, e.Conditions, (*Condition).append)
	if len(e.Timers) > 0 {
		if b, err = jsonwrite.Map(append(b, `,"timers":`...), e.Timers, Timer.append); err != nil {
			return nil, err
		}
	}
	if len(e.Effects) > 0 {
		if b, err = jsonwrite.Map(append(b, `,"effects":`...), e.Effects, Attempt.append); err != nil {
			return nil, err
		}
	}
	if b, err = appendAny(b, `,"lastError":`, e.LastError, e.LastError != nil); err != nil {
		return nil, err
	}
	b = appendUint(b, `,"mark":`, e.Mark)
	if !e.MarkedAt.IsZero() {
		b = appendTime(b, `,"markedAt":`, e.MarkedAt)
	}
	b = appendUint(b, `,"lastEvent":`, e.LastEvent)
	b = appendNonzero(b, `,"replaced":`, e.Replaced)
	b = appendList(b, `,"commands":`, e.Commands, (*Outcome).append)
	b = appendList(b, `,"outbox":`, e.Outbox, (*Message).append)
	b = append(b, '}')
	if e.rest != nil {
		whole, err := e.rest.Into(b[at:])
		return append(b[:at], whole...), err
	}
	return b, nil
}

func (c *Condition) append(b []byte) []byte {
	b = appendMember(b, `{"type":`, c.Type)
	b = appendMember(b, `,"status":`, string(c.Status))
	b = appendOptional(b, `,"reason":`, c.Reason)
	b = appendOptional(b, `,"message":`, c.Message)
	b = appendNonzero(b, `,"observedGeneration":`, c.ObservedGeneration)
	return append(appendTime(b, `,"lastTransitionTime":`, c.LastTransitionTime), '}')
}

func (t Timer) append(b []byte) (_ []byte, err error) {
	if b, err = appendTimeChecked(b, `{"at":"`, t.At); err != nil {
		return nil, err
	}
	return append(appendUint(b, `,"armed":`, t.Armed), '}'), nil
}

func (a Attempt) append(b []byte) (_ []byte, err error) {
	b = appendMember(b, `{"id":`, a.ID)
	b = strconv.AppendInt(append(b, `,"try":`...), int64(a.Try), 10)
	b = appendTime(appendNonzero(b, `,"fence":`, a.Fence), `,"since":`, a.Since)
	if a.NextTry != nil {
		if b, err = appendTimeChecked(b, `,"nextTry":"`, *a.NextTry); err != nil {
			return nil, err
		}
	}
	b, err = appendAny(b, `,"error":`, a.Error, a.Error != nil)
	return append(b, '}'), err
}

func (o *Outcome) append(b []byte) []byte {
	b = appendMember(b, `{"id":`, o.ID)
	b = appendMember(b, `,"command":`, o.Command)
	b = appendUint(b, `,"seq":`, o.Seq)
	b = appendMember(b, `,"result":`, o.Result)
	b = appendMember(b, `,"state":`, o.State)
	b = appendUint(b, `,"version":`, o.Version)
	b = appendUint(b, `,"generation":`, o.Generation)
	b = appendMember(b, `,"hash":`, o.Hash)
	b = appendNonzero(b, `,"revision":`, o.Revision)
	b, _ = appendAny(b, `,"why":`, o.Refusal, o.Refusal != nil) // texts only: it cannot fail
	return append(b, '}')
}

func (m *Message) append(b []byte) []byte {
	b = appendMember(b, `{"kind":`, m.Kind)
	b = appendMember(b, `,"name":`, m.Name)
	b = appendUint(b, `,"version":`, m.Version)
	b = appendUint(b, `,"n":`, uint64(m.N)) // a place in a list
	b = appendTime(b, `,"at":`, m.At)
	if len(m.Body) > 0 {
		b = append(append(b, `,"body":`...), m.Body...) // it was written by json.Marshal or by AppendJSON
	}
	b = appendOptional(b, `,"trace":`, m.Trace)
	b = appendOptional(b, `,"route":`, m.Route)
	b = appendNonzero(b, `,"refuse":`, m.Refusal)
	return append(b, '}')
}

// AppendJSON appends the body of the event.
func (e *Event) AppendJSON(b []byte) ([]byte, error) {
	b = appendMember(b, `{"from":`, e.From)
	b = appendMember(b, `,"to":`, e.To)
	b = appendUint(b, `,"version":`, e.Version)
	b = appendUint(b, `,"generation":`, e.Generation)
	b = appendTime(b, `,"time":`, e.Time)
	b = appendMember(b, `,"command":`, e.Command)
	b = appendOptional(b, `,"commandId":`, e.CommandID)
	b = appendOptional(b, `,"actor":`, e.Actor)
	b = appendOptional(b, `,"reason":`, e.Reason)
	b, err := appendAny(b, `,"data":`, e.Data, e.Data != nil)
	return append(b, '}'), err
}

// AppendJSON appends the answer.
func (a *Answer) AppendJSON(b []byte) ([]byte, error) {
	b = appendMember(b, `{"outcome":`, a.Outcome)
	b = appendMember(b, `,"machine":`, a.Machine)
	b = appendMember(b, `,"namespace":`, a.Namespace)
	b = appendMember(b, `,"id":`, a.ID)
	b = appendOptional(b, `,"parent":`, a.Parent)
	b = appendMember(b, `,"command":`, a.Command)
	b = appendOptional(b, `,"commandId":`, a.CommandID)
	b = appendMember(b, `,"state":`, a.State)
	b = appendUint(b, `,"version":`, a.Version)
	b = appendUint(b, `,"revision":`, a.Revision)
	b = appendUint(b, `,"generation":`, a.Generation)
	b, err := appendAny(b, `,"refusal":`, a.Refusal, a.Refusal != nil)
	return append(b, '}'), err
}

func appendList[T any](b []byte, name string, list []T, each func(*T, []byte) []byte) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(append(b, name...), '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = each(&list[i], b)
	}
	return append(b, ']')
}

func appendAny(b []byte, name string, v any, present bool) ([]byte, error) {
	if !present {
		return b, nil
	}
	b = append(b, name...)
	if raw, ok := v.(json.RawMessage); ok { // written before, and unchanged
		return append(b, raw...), nil
	}
	return jsonwrite.Value(b, v)
}

func appendMember(b []byte, name, value string) []byte {
	return jsonwrite.Text(append(b, name...), value)
}

func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendMember(b, name, value)
}

func appendUint(b []byte, name string, n uint64) []byte {
	return strconv.AppendUint(append(b, name...), n, 10)
}

func appendNonzero(b []byte, name string, n uint64) []byte {
	if n == 0 {
		return b
	}
	return appendUint(b, name, n)
}

// appendTime writes a time as time.Time's own MarshalJSON does for the years that it takes.
func appendTime(b []byte, name string, t time.Time) []byte {
	b = append(append(b, name...), '"')
	return append(t.AppendFormat(b, time.RFC3339Nano), '"')
}

// appendTimeChecked writes a time that was calculated: one that time.Time's own MarshalJSON does not take could not be read again.
func appendTimeChecked(b []byte, name string, t time.Time) ([]byte, error) {
	b, err := t.AppendText(append(b, name...))
	return append(b, '"'), err
}
