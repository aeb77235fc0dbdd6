package machines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/bcc94042/instar/internal/strictjson"
)

// Upcast brings a stored value from one schema to the next: from the first to the second for the first upcast of a machine, and so on. The
// value is the whole stored object, whose numbers are [json.Number]; it is changed in place. It may be called more than once for
// the same value, and must not depend on anything else.
type Upcast func(value map[string]any) error

// Schema is the schema of the values that this version of the machine writes: one more than it has upcasts. A value with a higher one was
// written by a newer program: it is reported and left alone.
func (m *Machine) Schema() int { return 1 + len(m.upcasts) }

// Current is the stored value in the schema of this version. Of a value that has it already it is the same slice. It fails
// for a value of a newer schema, and for one that has none.
func (m *Machine) Current(value []byte) ([]byte, error) {
	var head struct {
		Schema int `json:"schema"`
	}
	if len(m.upcasts) == 0 {
		return value, nil // what reads it looks
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return nil, fmt.Errorf("machines: cannot read a stored %s: %w", m.Name, err)
	}
	if err := m.checkSchema(head.Schema, ""); err != nil || head.Schema == m.Schema() {
		return value, err
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var all map[string]any
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("machines: cannot read a stored %s: %w", m.Name, err)
	}
	_, whole := all["data"] // what is left of a dropped value has none
	for n := head.Schema; n < m.Schema(); n++ {
		if whole {
			if err := m.upcasts[n-1](all); err != nil {
				return nil, fmt.Errorf("machines: cannot bring a stored %s from schema %d to %d: %w", m.Name, n, n+1, err)
			}
		}
		all["schema"] = n + 1
	}
	return json.Marshal(all)
}

func (m *Machine) checkSchema(schema int, key string) error {
	switch {
	case schema > m.Schema():
		return fmt.Errorf("machines: stored %s %s has schema %d, this program knows up to %d: run a newer one", m.Name, key, schema, m.Schema())
	case schema < 1:
		return fmt.Errorf("machines: stored %s has no schema: it was not written by this program", m.Name)
	}
	return nil
}

// rest are the members of a stored object that this version does not know: of a newer one, in a mixed cluster or after a roll-back.
// They are written again as they were. A member that is known, and has such members itself, is there with a rest.
type rest map[string]any // json.RawMessage or rest

// restOf finds them in an object that is decoded into a type; data is the type of what is declared as any. Lists are not looked into: their items
// have no names by which to find them again.
func restOf(raw []byte, t, data reflect.Type) rest {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface) {
		if t.Kind() == reflect.Interface {
			t = data
		} else {
			t = t.Elem()
		}
	}
	if t == nil || strictjson.DecodesItself(t) || t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil // null
	}
	found := rest{}
	for name, member := range members {
		of, known := data, true
		if t.Kind() == reflect.Map {
			of = t.Elem()
		} else if of, known = strictjson.Fields(t)[name]; !known {
			found[name] = member
			continue
		}
		if within := restOf(member, of, data); len(within) > 0 {
			found[name] = within
		}
	}
	return found
}

// ofEntity leaves out what belongs to one try of one thing: the next one is not of it.
func (r rest) ofEntity() rest {
	for _, name := range []string{"timers", "effects", "lastError"} {
		if _, known := r[name].(rest); known {
			delete(r, name)
		}
	}
	if len(r) == 0 {
		return nil
	}
	return r
}

// into adds the members to an object, in which they are not.
func (r rest) into(object []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return object, err // it is no object any more
	}
	left := maps.Clone(r)
	out := []byte{'{'}
	add := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = appendMember(out, "", name)
		out = append(append(out, ':'), value...)
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := token.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil || !ok {
			return nil, errors.Join(err, strictjson.ErrTrailing)
		}
		if within, ok := left[name].(rest); ok {
			if value, err = within.into(value); err != nil {
				return nil, err
			}
		}
		delete(left, name)
		add(name, value)
	}
	for name, value := range left {
		if value, unknown := value.(json.RawMessage); unknown {
			add(name, value)
		}
	}
	return append(out, '}'), nil
}
