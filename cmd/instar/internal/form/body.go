package form

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Sources is where a body comes from, besides the flags of its fields.
type Sources struct {
	File  string // JSON or YAML; "-" is Stdin, empty is none
	Stdin io.Reader
	Set   []string // path=value
}

// JSON is the body that the sources and the flags make together, or nil for a command without a body. Whether it is
// complete is for the server to say.
func (f *Form) JSON(fs *pflag.FlagSet, src Sources) ([]byte, error) {
	if f.Empty() {
		if src.File != "" || len(src.Set) > 0 {
			return nil, errors.New("this command has no body")
		}
		return nil, nil
	}
	body, err := src.read()
	if err != nil {
		return nil, err
	}
	for _, s := range src.Set {
		path, text, ok := strings.Cut(s, "=")
		if !ok || path == "" {
			return nil, fmt.Errorf("--set %s: write it as path=value", s)
		}
		if err := set(body, f.typ, path, text); err != nil {
			if whole := f.Example(path); whole != "" {
				err = fmt.Errorf("%w; it is given as a whole: %s", err, whole)
			}
			return nil, fmt.Errorf("--set %s: %w", s, err)
		}
	}
	for _, x := range f.fields {
		if flag := fs.Lookup(x.flag); x.flag != "" && flag != nil && flag.Changed {
			if v, ok := flag.Value.(*value); ok {
				if err := put(body, x.path, v.got); err != nil {
					return nil, err
				}
			}
		}
	}
	return json.Marshal(body)
}

// Text is what a file holds; "-" is stdin.
func Text(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}

func (s Sources) read() (map[string]any, error) {
	if s.File == "" {
		return map[string]any{}, nil
	}
	text, err := Text(s.File, s.Stdin)
	if err != nil {
		return nil, fmt.Errorf("cannot read the body: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text)) // JSON is YAML
	var body map[string]any
	if err := dec.Decode(&body); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: not the JSON or YAML of an object: %w", s.File, err)
	}
	if dec.Decode(new(any)) == nil {
		return nil, fmt.Errorf("%s: more than one document", s.File)
	}
	if body == nil {
		body = map[string]any{}
	}
	return body, nil
}

// set follows a dotted path through the types, so that the text becomes what the field is.
func set(body map[string]any, t reflect.Type, path, text string) error {
	var steps []string
	at := deref(t)
	for rest := path; ; {
		if at.Kind() == reflect.Map { // its keys may have dots, unless more is below them
			if scalar(deref(at.Elem())) {
				steps, at = append(steps, rest), deref(at.Elem())
				break
			}
			var step string
			step, rest, _ = strings.Cut(rest, ".")
			steps, at = append(steps, step), deref(at.Elem())
		} else if at.Kind() == reflect.Interface || at == rawType { // anything may be below it
			var step string
			step, rest, _ = strings.Cut(rest, ".")
			steps, at = append(steps, step), anyType
		} else if at.Kind() == reflect.Struct && !textual(at) {
			var step string
			step, rest, _ = strings.Cut(rest, ".")
			ms := members(at)
			i := slices.IndexFunc(ms, func(m member) bool { return m.name == step })
			if i < 0 {
				return fmt.Errorf("there is no %q; there are %s", step, names(ms))
			}
			steps, at = append(steps, step), deref(ms[i].typ)
		} else {
			return fmt.Errorf("nothing is below %s", strings.Join(steps, "."))
		}
		if rest == "" {
			break
		}
	}
	v, err := parse(at, text)
	if err != nil {
		return err
	}
	return put(body, steps, v)
}

func names(ms []member) string {
	var all []string
	for _, m := range ms {
		all = append(all, m.name)
	}
	return strings.Join(all, ", ")
}

// put sets the value at the path. A map is added to the one that is there.
func put(body map[string]any, path []string, v any) error {
	for _, step := range path[:len(path)-1] {
		if body[step] == nil {
			body[step] = map[string]any{}
		}
		next, ok := body[step].(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %s is no object in the file", strings.Join(path, "."), step)
		}
		body = next
	}
	last := path[len(path)-1]
	if have, ok := body[last].(map[string]any); ok {
		if more, ok := v.(map[string]any); ok {
			for k, v := range more {
				have[k] = v
			}
			return nil
		}
	}
	body[last] = v
	return nil
}

// parse makes of a text what JSON has for the type.
func parse(t reflect.Type, text string) (any, error) {
	switch {
	case t == duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%q is no duration, such as 1m30s", text)
		}
		return int64(d), nil
	case textual(t):
		if err := reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		return text, nil
	case t == rawType:
		var v any
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber() // they keep their digits
		if dec.Decode(&v) != nil || dec.Decode(new(any)) != io.EOF {
			return nil, fmt.Errorf("%q is no JSON", text)
		}
		return v, nil
	}
	switch t.Kind() {
	case reflect.String:
		return text, nil
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither true nor false", text)
		}
		return b, nil
	case reflect.Float32, reflect.Float64:
		return number(strconv.ParseFloat(text, t.Bits()))(text)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return number(strconv.ParseInt(text, 10, t.Bits()))(text)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return number(strconv.ParseUint(text, 10, t.Bits()))(text)
	case reflect.Slice:
		if flaggable(t) && !strings.HasPrefix(text, "[") {
			return list(t.Elem(), text)
		}
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		if t.Kind() == reflect.Interface {
			return text, nil
		}
		return nil, fmt.Errorf("%q is no JSON", text)
	}
	return v, nil
}

func number[N any](n N, err error) func(text string) (any, error) {
	return func(text string) (any, error) {
		if err != nil {
			return nil, fmt.Errorf("%q is no number that fits", text)
		}
		return n, nil
	}
}

func list(t reflect.Type, text string) (any, error) {
	vs := []any{}
	for _, part := range strings.Split(text, ",") {
		v, err := parse(t, part)
		if err != nil {
			return nil, err
		}
		vs = append(vs, v)
	}
	return vs, nil
}

// value is the flag of a field.
type value struct {
	field *field
	got   any
	text  []string
}

func (v *value) String() string {
	if v == nil {
		return ""
	}
	return strings.Join(v.text, ",")
}

// Set is called for each time the flag is given.
func (v *value) Set(text string) error {
	t := v.field.typ
	if len(v.field.enum) > 0 && !slices.Contains(v.field.enum, text) {
		return fmt.Errorf("must be one of %s", strings.Join(v.field.enum, ", "))
	}
	v.text = append(v.text, text)
	switch {
	case scalar(t), t == rawType:
		got, err := parse(t, text)
		v.got = got
		return err
	case t.Kind() == reflect.Slice:
		item, err := parse(t.Elem(), text)
		have, _ := v.got.([]any)
		v.got = append(have, item)
		return err
	}
	key, text, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return errors.New("write it as KEY=VALUE")
	}
	item, err := parse(t.Elem(), text)
	if v.got == nil {
		v.got = map[string]any{}
	}
	v.got.(map[string]any)[key] = item
	return err
}

// Type is what the help shows in place of a value.
func (v *value) Type() string {
	switch t := v.field.typ; {
	case len(v.field.enum) > 0:
		return strings.Join(v.field.enum, "|")
	case t.Kind() == reflect.Map:
		return "K=V"
	case t == duration:
		return "duration"
	case t == rawType:
		return "JSON"
	case textual(t):
		return "text"
	case t.Kind() == reflect.Slice:
		return t.Elem().Kind().String()
	default:
		return t.Kind().String()
	}
}
