// Package jsonwrite appends JSON without reflection where it can: what encoding/json would write for the same value, but for the escaping of <, > and &.
package jsonwrite

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Text appends a string; one with anything but plain ASCII is left to encoding/json.
func Text(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			raw, _ := json.Marshal(s) // a string cannot fail
			return append(b, raw...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// Value appends texts, numbers and maps of them; encoding/json writes the rest.
func Value(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return Text(b, v), nil
	case uint64:
		return strconv.AppendUint(b, v, 10), nil
	case map[string]string:
		return Texts(b, v), nil
	case map[string]any:
		return Map(b, v, func(v any, b []byte) ([]byte, error) { return Value(b, v) })
	}
	raw, err := json.Marshal(v)
	return append(b, raw...), err
}

// Map appends the members in the order of their names.
func Map[T any](b []byte, m map[string]T, each func(T, []byte) ([]byte, error)) (_ []byte, err error) {
	if m == nil {
		return append(b, "null"...), nil
	}
	names := make([]string, 0, 8) // not on the heap while there are no more
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	b = append(b, '{')
	for i, k := range names {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = each(m[k], append(Text(b, k), ':')); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// Texts appends a map of texts.
func Texts(b []byte, m map[string]string) []byte {
	b, _ = Map(b, m, func(v string, b []byte) ([]byte, error) { return Text(b, v), nil })
	return b
}
