package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"

	"github.com/bcc94042/instar/internal/jsonwrite"
)

// Unknown are the members of a stored object that this version does not know: of a newer one, in a mixed cluster or after a roll-back.
// They are written again as they were. A member that is known, and has such members itself, is there with an Unknown.
type Unknown map[string]any // json.RawMessage or Unknown

// UnknownOf finds them in an object that is decoded into a type; data is the type of what is declared as any. Lists are not looked into: their items
// have no names by which to find them again.
func UnknownOf(raw []byte, t, data reflect.Type) Unknown {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface) {
		if t.Kind() == reflect.Interface {
			t = data
		} else {
			t = t.Elem()
		}
	}
	if t == nil || DecodesItself(t) || t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil // null
	}
	found := Unknown{}
	for name, member := range members {
		of, known := data, true
		if t.Kind() == reflect.Map {
			of = t.Elem()
		} else if of, known = Fields(t)[name]; !known {
			found[name] = member
			continue
		}
		if within := UnknownOf(member, of, data); len(within) > 0 {
			found[name] = within
		}
	}
	return found
}

// Into adds the members to an object, in which they are not.
func (u Unknown) Into(object []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return object, err // it is no object any more
	}
	left := maps.Clone(u)
	out := []byte{'{'}
	add := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(jsonwrite.Text(out, name), ':'), value...)
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := token.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil || !ok {
			return nil, errors.Join(err, ErrTrailing)
		}
		if within, ok := left[name].(Unknown); ok {
			if value, err = within.Into(value); err != nil {
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
