package form

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Missing names the first value that a body needs and does not have, as the flag that gives it, or else by its path.
func (f *Form) Missing(body []byte) string {
	var given map[string]any
	if f.typ == nil || len(body) > 0 && json.Unmarshal(body, &given) != nil {
		return ""
	}
	path := missing(f.typ, given, nil)
	if path == nil {
		return ""
	}
	for _, x := range f.fields {
		if x.flag != "" && reflect.DeepEqual(x.path, path) {
			return "--" + x.flag
		}
	}
	return strings.Join(path, ".")
}

func missing(t reflect.Type, given map[string]any, at []string) []string {
	for _, s := range members(t) {
		here, inner := append(append([]string{}, at...), s.name), deref(s.typ)
		value, there := given[s.name]
		below, _ := value.(map[string]any)
		switch {
		case !s.required && !there:
		case inner.Kind() == reflect.Struct && !textual(inner) && (!there || below != nil):
			if path := missing(inner, below, here); path != nil || there {
				if path != nil {
					return path
				}
				continue
			}
			return here
		case !there:
			return here
		}
	}
	return nil
}
