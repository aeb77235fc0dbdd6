// Package strictjson reads JSON that must not have anything that nobody reads, and finds in other JSON what nobody reads, so that it can be kept.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
)

// ErrTrailing says that there is text after the value.
var ErrTrailing = errors.New("json: has text after the JSON value")

// Unmarshal reads one JSON value as encoding/json does, but refuses what that would forgive: members that no field has,
// members whose name differs from that of a field in upper and lower case, and text after the value ([ErrTrailing]).
func Unmarshal(raw []byte, into any) error {
	if json.Unmarshal(raw, into) == nil {
		n := names{raw: raw}
		if n.value(reflect.TypeOf(into)); n.odd == "" { // what encoding/json does not know is among these
			return nil
		}
		if err := explain(raw, reflect.New(reflect.TypeOf(into).Elem()).Interface()); err != nil {
			return err
		}
		return unknownError(n.odd)
	}
	return explain(raw, into)
}

// explain decodes what is not as it should be again, by a decoder, which allocates more and has the more precise errors.
func explain(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return ErrTrailing
	}
	return nil
}

// unknownError says of a name what encoding/json says of one that no field is alike to.
type unknownError string

func (e unknownError) Error() string { return fmt.Sprintf("json: unknown field %q", string(e)) }

// names walks a text that is known to be JSON, and looks at the names of members only.
type names struct {
	raw []byte
	i   int
	odd string // the first name that is none of a field
}

// value goes behind a value. A nil type knows no fields.
func (n *names) value(t reflect.Type) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch n.blank(); n.raw[n.i] {
	case '{':
		n.object(t)
	case '[':
		var each reflect.Type
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && !DecodesItself(t) {
			each = t.Elem()
		}
		for n.i++; n.more(']'); {
			n.value(each)
		}
	case '"':
		n.text()
	default:
		for n.i < len(n.raw) && strings.IndexByte(",]} \n\t\r", n.raw[n.i]) < 0 {
			n.i++
		}
	}
}

func (n *names) object(t reflect.Type) {
	var fields map[string]reflect.Type
	var each reflect.Type
	switch {
	case t == nil || DecodesItself(t):
	case t.Kind() == reflect.Struct:
		fields = Fields(t)
	case t.Kind() == reflect.Map:
		each = t.Elem()
	}
	for n.i++; n.more('}'); {
		name := n.text()
		n.blank()
		n.i++ // the colon
		of := each
		if fields != nil {
			known := false
			if of, known = fields[string(name)]; !known && n.odd == "" {
				n.odd = string(name)
			}
		}
		n.value(of)
	}
}

// more goes to the next item, or behind the end.
func (n *names) more(end byte) bool {
	n.blank()
	if n.raw[n.i] == ',' {
		n.i++
		n.blank()
	}
	if n.raw[n.i] != end {
		return true
	}
	n.i++
	return false
}

func (n *names) blank() {
	for n.raw[n.i] == ' ' || n.raw[n.i] == '\n' || n.raw[n.i] == '\t' || n.raw[n.i] == '\r' {
		n.i++
	}
}

// text goes behind a text and returns what it says.
func (n *names) text() []byte {
	start, escaped := n.i, false
	for n.i++; n.raw[n.i] != '"'; n.i++ {
		if n.raw[n.i] == '\\' {
			escaped = true
			n.i++
		}
	}
	n.i++
	quoted := n.raw[start:n.i]
	if escaped {
		var s string
		_ = json.Unmarshal(quoted, &s) // it was read before
		return []byte(s)
	}
	return quoted[1 : len(quoted)-1]
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// DecodesItself reports whether a type, or a pointer to it, has a method that decodes it.
func DecodesItself(t reflect.Type) bool {
	return t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler)
}

var fieldNames sync.Map // of reflect.Type: map[string]reflect.Type

// Fields are the members of a struct by their exact names, those of embedded structs included. They are shared and must not be changed.
func Fields(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldNames.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" || !f.IsExported() || f.Anonymous && tag == "" {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		fields[tag] = f.Type
	}
	fieldNames.Store(t, fields)
	return fields
}
