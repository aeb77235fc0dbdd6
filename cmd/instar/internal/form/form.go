// Package form makes flags from the struct of a command's body, and a JSON body from the flags that were given.
//
// A field is reached by a flag of its own (--image, --probe-path), by --set with its dotted path (spec.probe.path=/),
// and in a file. The flags win over --set, and --set over the file.
package form

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
)

// Form is the body of one command. That of a command without a body has no fields.
type Form struct {
	typ    reflect.Type // nil without a body
	fields []*field
}

// field is a value of the body: one that a flag can hold, or a list of objects and the like, which --set and files reach.
type field struct {
	path []string // names in JSON
	typ  reflect.Type
	tag  reflect.StructTag
	doc  string
	enum []string
	flag string // empty where it has none
}

// Of is the form of a body, which is a value of its struct type, or nil. A map is an object of which nothing is known: it has
// no flags, and what --set gives is JSON, or else a text.
func Of(body any) *Form {
	f := &Form{}
	if body == nil {
		return f
	}
	f.typ = reflect.TypeOf(body)
	f.collect(f.typ, nil, nil)
	return f
}

// Path is where the body has the value of a flag of [Form.Bind], as names in JSON; nil of a flag that is none.
func (f *Form) Path(flag string) []string {
	for _, x := range f.fields {
		if x.flag == flag {
			return x.path
		}
	}
	return nil
}

// Has reports whether the body has a value of this name, at its top.
func (f *Form) Has(name string) bool {
	return slices.ContainsFunc(f.fields, func(x *field) bool { return len(x.path) == 1 && x.path[0] == name })
}

// Empty reports whether the command has no body.
func (f *Form) Empty() bool { return f.typ == nil }

func (f *Form) collect(t reflect.Type, path []string, within []reflect.Type) {
	for _, seen := range within {
		if seen == t { // a type that holds itself; --set and files reach the rest
			return
		}
	}
	within = append(within, t)
	for _, s := range members(t) {
		at := append(append([]string{}, path...), s.name)
		inner := deref(s.typ)
		switch {
		case flaggable(inner):
			x := &field{path: at, typ: inner, tag: s.tag, doc: s.tag.Get("doc")}
			if enum := s.tag.Get("enum"); enum != "" {
				x.enum = strings.Split(enum, ",")
			}
			f.fields = append(f.fields, x)
		case inner.Kind() == reflect.Struct && !textual(inner):
			f.collect(inner, at, within)
		default:
			f.fields = append(f.fields, &field{path: at, typ: inner, tag: s.tag})
		}
	}
}

// member is a field of a struct as JSON has it.
type member struct {
	name     string
	typ      reflect.Type
	tag      reflect.StructTag
	required bool // by the schema that the server makes of the struct
}

func members(t reflect.Type) []member {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var ms []member
	for i := range t.NumField() {
		s := t.Field(i)
		name, rest, _ := strings.Cut(s.Tag.Get("json"), ",")
		required := !strings.Contains(rest, "omit") && s.Tag.Get("required") != "false"
		switch {
		case name == "-" || !s.IsExported() && !s.Anonymous:
		case s.Anonymous && name == "" && deref(s.Type).Kind() == reflect.Struct:
			ms = append(ms, members(deref(s.Type))...)
		case s.IsExported():
			if name == "" {
				name = s.Name
			}
			ms = append(ms, member{name, s.Type, s.Tag, required})
		}
	}
	return ms
}

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

var (
	textType = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonType = reflect.TypeFor[json.Unmarshaler]()
	duration = reflect.TypeFor[time.Duration]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	anyType  = reflect.TypeFor[any]()
)

// textual reports whether the type is a text in JSON, although its kind is another one, such as time.Time.
func textual(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textType) }

// scalar reports whether one word of a command line is a value of the type.
func scalar(t reflect.Type) bool {
	if textual(t) {
		return true
	}
	if reflect.PointerTo(t).Implements(jsonType) {
		return t.Kind() == reflect.String
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return false
}

// flaggable: scalars, lists of them, maps from texts to them, and JSON that is passed on as it is.
func flaggable(t reflect.Type) bool {
	switch {
	case scalar(t), t == rawType:
		return true
	case t.Kind() == reflect.Slice:
		return t.Elem().Kind() != reflect.Uint8 && scalar(t.Elem())
	case t.Kind() == reflect.Map:
		return t.Key().Kind() == reflect.String && scalar(t.Elem())
	}
	return false
}

// Bind declares a flag per field, under a name that neither fs nor inherited has. The first step of a path is left out
// of the name as long as that leaves it unique: what is wanted stands under "spec" nearly everywhere. The map "labels"
// becomes --label.
func (f *Form) Bind(fs, inherited *pflag.FlagSet) {
	taken := func(name string) bool { return fs.Lookup(name) != nil || inherited.Lookup(name) != nil }
	names := map[string]int{}
	for _, x := range f.fields {
		names[x.short()]++
	}
	for _, x := range f.fields {
		if !flaggable(x.typ) {
			continue
		}
		x.flag = x.short()
		if names[x.flag] > 1 || taken(x.flag) {
			x.flag = kebab(x.path)
		}
		if taken(x.flag) {
			x.flag = "" // --set reaches it
			continue
		}
		v := &value{field: x}
		flag := fs.VarPF(v, x.flag, "", x.usage())
		if x.typ.Kind() == reflect.Bool {
			flag.NoOptDefVal = "true"
		}
	}
}

// Enums are the flags with a fixed choice of values.
func (f *Form) Enums() map[string][]string {
	enums := map[string][]string{}
	for _, x := range f.fields {
		if len(x.enum) > 0 && x.flag != "" {
			enums[x.flag] = x.enum
		}
	}
	return enums
}

func (x *field) short() string {
	if len(x.path) == 1 {
		if x.path[0] == "labels" && x.typ.Kind() == reflect.Map {
			return "label"
		}
		return kebab(x.path)
	}
	return kebab(x.path[1:])
}

func (x *field) usage() string {
	doc := x.doc
	if doc == "" {
		doc = strings.Join(x.path, ".")
	}
	switch {
	case x.typ.Kind() == reflect.Map:
		doc += " (K=V, repeatable)"
	case x.typ.Kind() == reflect.Slice && x.typ != rawType:
		doc += " (repeatable)"
	}
	return strings.ReplaceAll(doc, "`", "'")
}

func kebab(path []string) string {
	var b strings.Builder
	for i, step := range path {
		if i > 0 {
			b.WriteByte('-')
		}
		runes := []rune(step)
		for j, r := range runes {
			if unicode.IsUpper(r) && j > 0 && (!unicode.IsUpper(runes[j-1]) || j+1 < len(runes) && unicode.IsLower(runes[j+1])) {
				b.WriteByte('-')
			}
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}
