// Package orders makes up what the clients of a simulation want, and has the machine [Things], for which it is easy to say what should have come of it: commands and reports, drawn from the tables of the machines: names of inputs, and bodies filled in by the types that the tables give them, mostly with values that make sense.
package orders

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
)

// words are values for fields of these names; of others any of "" stands.
var words = map[string][]string{
	"":            {"a", "b", ""},
	"image":       {"a:1", "b:2", "c:3", "d:4"},
	"drift":       {"", "report", "reapply"},
	"ready":       {"True", "True", "True", "False", "Unknown"},
	"status":      {"True", "False"},
	"route":       {"", "", "True", "False"},
	"address":     {"10.0.0.1", "10.0.0.2"},
	"nodeAddress": {"10.0.0.1:80", "10.0.0.2:81"},
	"type":        {"ttl", "ttl", "none", "http"},
	"code":        {"unavailable", "invalid"},
	"for":         {"", "5s"},
	"version":     {"", "1"},
	"uid":         {"k1", "k1", "k2"},
	"how":         {"", "", "x"},
}

// fill gives a value of a type. Depth bounds what nests.
func fill(r *rand.Rand, v reflect.Value, name string, depth int) {
	switch v.Type() {
	case reflect.TypeFor[time.Time]():
		return // none
	case reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{"x":1}`))
		return
	case reflect.TypeFor[time.Duration]():
		v.SetInt(int64(time.Duration(r.IntN(20)) * time.Second))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 0 && r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), name, depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || tag == "-" {
				continue
			}
			if strings.Contains(options, "omit") && r.IntN(3) > 0 {
				continue
			}
			if tag == "" {
				tag = f.Name
			}
			fill(r, v.Field(i), tag, depth-1)
		}
	case reflect.String:
		list, ok := words[name]
		if !ok {
			list = words[""]
		}
		v.SetString(list[r.IntN(len(list))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(int64(1 + r.IntN(4)))
	case reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint:
		v.SetUint(uint64(1 + r.IntN(4)))
	case reflect.Float64:
		v.SetFloat(float64(r.IntN(3)))
	case reflect.Slice:
		if depth > 0 && r.IntN(3) == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(r, v.Index(0), name, depth-1)
		}
	case reflect.Map:
		if depth > 0 && r.IntN(3) == 0 && v.Type().Key().Kind() == reflect.String {
			v.Set(reflect.MakeMap(v.Type()))
			e := reflect.New(v.Type().Elem()).Elem()
			fill(r, e, name, depth-1)
			v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), e)
		}
	}
}

// ValueOf is a random value of the type of another one; nil of nil.
func ValueOf(r *rand.Rand, like any) any {
	if like == nil {
		return nil
	}
	v := reflect.New(reflect.TypeOf(like))
	fill(r, v.Elem(), "", 4)
	return v.Interface()
}

func jsonOf(v any) []byte {
	if v == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return []byte("{}")
	}
	return raw
}

// Order is one thing that a client wants.
type Order struct {
	Machine, Key, Name string
	Body               []byte
	Expect             string // the revision; empty for any
}

// Told is expected where a client wants the entity to be at the revision that it was told last.
const Told = "told"

var garbage = []string{"", "{", "null", "[]", "7", `"text"`, "{}", `{"a":1}{}`, `{"spec":{"image":1}}`, "\x00\xff"}

// Draw is what a client wants next of some machines, given the keys of their entities.
func Draw(r *rand.Rand, ms []*machines.Machine, keys map[string][]string) Order {
	m := ms[r.IntN(len(ms))]
	o := Order{Machine: m.Name, Key: keys[m.Name][r.IntN(len(keys[m.Name]))]}
	inputs := m.Commands()
	switch n := r.IntN(40); {
	case n == 0: // what the outside reports, by somebody who makes it up
		inputs = m.Inputs
	case n < 10: // births, or nothing would live
		var births []machines.Command
		for _, c := range inputs {
			if c.Birth {
				births = append(births, c)
			}
		}
		if len(births) > 0 {
			inputs = births
		}
	}
	c := inputs[r.IntN(len(inputs))]
	o.Name, o.Body = c.Name, jsonOf(ValueOf(r, c.Body))
	if c.Report {
		o.Body = jsonOf(machines.Report{Attempt: words["uid"][0], Data: o.Body})
	}
	switch r.IntN(30) {
	case 0:
		o.Body = []byte(garbage[r.IntN(len(garbage))])
	case 1:
		o.Expect = []string{"*", "1", "7", "9,11", "x"}[r.IntN(5)]
	case 3, 4, 5:
		o.Expect = Told
	case 2:
		o.Name = machines.CommandReconcile
		o.Body = nil
	}
	return o
}
