package form

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Examples are how --set gives the values of the body that have no flag, such as lists of objects.
func (f *Form) Examples() (all []string) {
	for _, x := range f.fields {
		if x.flag == "" {
			all = append(all, x.example())
		}
	}
	return all
}

// Example is how --set gives the value at a path, or the one that it is below, where that has no flag; else it is empty.
func (f *Form) Example(path string) string {
	for _, x := range f.fields {
		at := strings.Join(x.path, ".")
		if rest, within := strings.CutPrefix(path, at); within && x.flag == "" && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return x.example()
		}
	}
	return ""
}

func (x *field) example() string {
	value := sample(x.typ, x.tag, strings.ToUpper(x.path[len(x.path)-1]), 3)
	if text := ""; json.Unmarshal([]byte(value), &text) == nil { // it is written as it is
		value = text
	}
	return "--set '" + strings.Join(x.path, ".") + "=" + value + "'"
}

// sample is a value of a type in JSON, with what a body has to have and the examples of its schema. It goes so many levels deep.
func sample(t reflect.Type, tag reflect.StructTag, name string, levels int) string {
	switch t = deref(t); {
	case levels == 0, t == rawType:
		return "{}"
	case textual(t), t.Kind() == reflect.String:
		enum, _, _ := strings.Cut(tag.Get("enum"), ",")
		return fmt.Sprintf("%q", cmp.Or(tag.Get("example"), enum, name))
	case scalar(t) && tag.Get("example") != "":
		return tag.Get("example")
	case t.Kind() == reflect.Bool:
		return "true"
	case scalar(t):
		return "1"
	case t.Kind() == reflect.Slice:
		return "[" + sample(t.Elem(), tag, name, levels-1) + "]"
	case t.Kind() == reflect.Map:
		return `{"KEY":` + sample(t.Elem(), tag, name, levels-1) + "}"
	}
	var has []string
	for _, s := range members(t) {
		if s.required || s.tag.Get("example") != "" {
			has = append(has, fmt.Sprintf("%q:%s", s.name, sample(s.typ, s.tag, strings.ToUpper(s.name), levels-1)))
		}
	}
	return "{" + strings.Join(has, ",") + "}"
}
