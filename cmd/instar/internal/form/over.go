package form

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Over puts a body over what an entity has under the names of the body, both as JSON has them: what the body says of a value takes the place of that value, whole lists and maps included, and what it
// does not say stays. A command without a body, or of which nothing is known, has the body as it is.
func (f *Form) Over(body []byte, has map[string]any) ([]byte, error) {
	if f.typ == nil || f.typ.Kind() != reflect.Struct {
		return body, nil
	}
	said, err := Object(body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(over(f.typ, said, has))
}

// Object reads a JSON object, whose numbers keep their digits.
func Object(raw []byte) (o map[string]any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return o, dec.Decode(&o)
}

func over(t reflect.Type, said, has map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range said { // also what the server is to refuse
		out[name] = v
	}
	for _, m := range members(t) {
		old, there := has[m.name]
		inner := deref(m.typ)
		if !there || old == nil {
			continue
		}
		mine, given := said[m.name]
		below, isObject := mine.(map[string]any)
		switch had, wasObject := old.(map[string]any); {
		case wasObject && (!given || isObject) && inner.Kind() == reflect.Struct && !textual(inner):
			out[m.name] = over(inner, below, had) // without what the body has no name for
		case !given:
			out[m.name] = old
		}
	}
	return out
}
