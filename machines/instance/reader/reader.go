// Package reader reads stored instances by the thousand: what an index of all of them keeps.
package reader

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// Reader decodes stored instances as [instance.Decode] does, and lets those that it has decoded share what they have in common:
// most texts of a registration are those of its neighbours, terms and payloads as well. So a record is a fifth of the size,
// and decoding allocates little. Values must be valid JSON. It is for one goroutine; its zero value is ready.
type Reader struct {
	texts    map[string]string
	payloads map[string]map[string]string // by their JSON
	terms    map[string]*instance.Terms   // by that of the check and of the policy
	buf      []byte
	key      string // of the value that is being read
}

// Bounds of what is remembered for those that come later. What was shared before stays shared.
const (
	maxShared     = 1 << 14 // texts, payloads, and terms
	maxSharedText = 128     // bytes; longer ones are hardly ever the same
	maxSharedMap  = 1 << 10
)

// Decode reads the value that is stored under a key. The id is a part of the key, if it may be.
func (r *Reader) Decode(key string, value []byte) (*instance.Record, error) {
	rec := new(instance.Record)
	r.key = key
	if r.quick(rec, value) {
		return rec, nil
	}
	rec, err := instance.Decode(value) // whatever it is, it is decoded or refused by the rules of encoding/json
	if err != nil {
		return nil, err
	}
	r.shareAll(rec)
	return rec, nil
}

func (r *Reader) shareAll(rec *instance.Record) {
	d := &rec.Data
	for _, p := range [...]*string{&rec.Namespace, &rec.Service, &rec.State, &d.Zone, &d.Version} {
		*p = r.text([]byte(*p))
	}
	r.shareTags(d)
	if raw, err := json.Marshal(d.Payload); err == nil && d.Payload != nil {
		d.Payload = r.payload(raw, d.Payload)
	}
	check, err := json.Marshal(d.Check)
	policy, err2 := json.Marshal(d.Policy)
	if err == nil && err2 == nil {
		d.Terms = r.termsOf(check, policy, d.Terms)
	}
}

func (r *Reader) shareTags(d *instance.Known) {
	for i := range d.Tags {
		d.Tags[i] = r.text([]byte(d.Tags[i]))
	}
}

// termsOf is the one copy of terms; t are they when they are decoded already. Without the one or the other it is empty.
func (r *Reader) termsOf(check, policy []byte, t *instance.Terms) *instance.Terms {
	r.buf = append(append(append(r.buf[:0], check...), 0), policy...)
	if have, there := r.terms[string(r.buf)]; there {
		return have
	}
	if t == nil {
		read := new(instance.Terms)
		if len(check) > 0 && json.Unmarshal(check, &read.Check) != nil || len(policy) > 0 && json.Unmarshal(policy, &read.Policy) != nil {
			return nil
		}
		t = read
	}
	if len(r.buf) <= maxSharedMap {
		remember(&r.terms, string(r.buf), t)
	}
	return t
}

// remember keeps what was read for those that come later. When there is too much of it, it begins anew.
func remember[T any](in *map[string]T, text string, v T) {
	if *in == nil || len(*in) >= maxShared {
		*in = map[string]T{}
	}
	(*in)[text] = v
}

// text is the one copy of a text.
func (r *Reader) text(raw []byte) string {
	if len(raw) == 0 || len(raw) > maxSharedText {
		return string(raw)
	}
	s, there := r.texts[string(raw)]
	if there {
		return s
	}
	s = string(raw)
	remember(&r.texts, s, s)
	return s
}

// payload is the one copy of a payload; m is it when it is decoded already.
func (r *Reader) payload(raw []byte, m map[string]string) map[string]string {
	if have, there := r.payloads[string(raw)]; there {
		return have
	}
	if m == nil {
		var read map[string]string // which escapes, as m need not
		if json.Unmarshal(raw, &read) != nil {
			return nil
		}
		m = read
	}
	if len(raw) <= maxSharedMap {
		remember(&r.payloads, string(raw), m)
	}
	return m
}

// quick reads what instances usually look like. It returns false for anything else.
func (r *Reader) quick(rec *instance.Record, value []byte) bool {
	f := fields{b: value}
	machine := false
	for f.next() {
		ok := true
		switch string(f.name) {
		case "machine":
			machine = string(f.value) == `"instance"`
		case "namespace":
			ok = f.shared(r, &rec.Namespace)
		case "parent":
			ok = f.shared(r, &rec.Service)
		case "id":
			ok = f.tail(r.key, &rec.ID)
		case "state":
			ok = f.shared(r, &rec.State)
		case "since":
			ok = f.time(&rec.Since)
		case "generation":
			ok = f.number(&rec.Generation)
		case "version":
			ok = f.number(&rec.Version)
		case "data":
			ok = r.quickData(&rec.Data, f.value)
		}
		if !ok {
			return false
		}
	}
	return f.whole && machine && rec.Namespace != "" && rec.Service != "" && rec.ID != "" && rec.State != ""
}

func (r *Reader) quickData(d *instance.Known, value []byte) bool {
	f, tags := fields{b: value}, false
	var check, policy []byte
	var at time.Time
	for f.next() {
		ok := false
		switch string(f.name) {
		case "nodeAddress":
			ok = f.text(&d.NodeAddress)
		case "payload":
			d.Payload = r.payload(f.value, nil)
			ok = d.Payload != nil
		case "zone":
			ok = f.shared(r, &d.Zone)
		case "version":
			ok = f.shared(r, &d.Version)
		case "weight":
			ok = f.int(&d.Weight)
		case "check":
			check, ok = f.value, true
		case "policy":
			policy, ok = f.value, true
		case "healthCheckRetries":
			ok = f.int(&d.Retries)
		case "evidence":
			ok = evidenceIsOne(f.value)
		case "protected":
			d.Protected, ok = true, string(f.value) == "true"
		case "registeredAt", "admitUntil":
			ok = f.time(&at)
		case "tags":
			ok, tags = json.Unmarshal(f.value, &d.Tags) == nil, true
		}
		if !ok {
			return false
		}
	}
	if tags {
		r.shareTags(d)
	}
	d.Terms = r.termsOf(check, policy, nil)
	return f.whole && d.Terms != nil
}

// evidenceIsOne reports whether it is what evidence usually looks like; nobody who keeps records wants more of it.
func evidenceIsOne(value []byte) bool {
	var n int
	var g uint64
	var at time.Time
	f := fields{b: value}
	for f.next() {
		ok := false
		switch string(f.name) {
		case "observer", "kind", "output":
			_, ok = f.plain()
		case "consecutive", "status", "weight":
			ok = f.int(&n)
		case "at":
			ok = f.time(&at)
		case "generation":
			ok = f.number(&g)
		}
		if !ok {
			return false
		}
	}
	return f.whole
}

// fields walks over the members of an object that is valid JSON. whole says that it came to the end of it.
type fields struct {
	b           []byte
	i           int
	name, value []byte
	whole       bool
}

// next goes to the next member. It stops where a name is not plain.
func (f *fields) next() bool {
	switch f.skip(); {
	case f.i == 0 && f.at('{'), f.i > 0 && f.at(','):
		f.i++
	default:
		f.whole = f.i > 0 && f.at('}') && f.i == len(f.b)-1
		return false
	}
	f.skip()
	if f.at('}') { // of an empty object; JSON has no comma before it
		f.whole = f.i == len(f.b)-1
		return false
	}
	start := f.i
	if !f.at('"') || !f.quoted() {
		return false
	}
	f.name = f.b[start+1 : f.i-1]
	if f.skip(); !f.at(':') {
		return false
	}
	f.i++
	f.skip()
	start = f.i
	if !f.pass() {
		return false
	}
	f.value = f.b[start:f.i]
	return true
}

func (f *fields) at(c byte) bool { return f.i < len(f.b) && f.b[f.i] == c }

func (f *fields) skip() {
	for f.i < len(f.b) && (f.b[f.i] == ' ' || f.b[f.i] == '\n' || f.b[f.i] == '\t' || f.b[f.i] == '\r') {
		f.i++
	}
}

// quoted goes behind the text that begins here.
func (f *fields) quoted() bool {
	for f.i++; f.i < len(f.b); f.i++ {
		switch f.b[f.i] {
		case '\\':
			f.i++
		case '"':
			f.i++
			return true
		}
	}
	return false
}

// pass goes behind the value that begins here.
func (f *fields) pass() bool {
	depth, start := 0, f.i
	for f.i < len(f.b) {
		switch f.b[f.i] {
		case '"':
			if !f.quoted() {
				return false
			}
			if depth == 0 {
				return true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return f.i > start
			}
			if depth--; depth == 0 {
				f.i++
				return true
			}
		case ',':
			if depth == 0 {
				return f.i > start
			}
		}
		f.i++
	}
	return false
}

// plain is a text without escapes, in ASCII.
func (f *fields) plain() ([]byte, bool) {
	v := f.value
	if len(v) < 2 || v[0] != '"' {
		return nil, false
	}
	v = v[1 : len(v)-1]
	for _, c := range v {
		if c == '\\' || c < ' ' || c >= 0x80 {
			return nil, false
		}
	}
	return v, true
}

func (f *fields) text(into *string) bool {
	v, ok := f.plain()
	*into = string(v)
	return ok
}

// tail is a text that the key ends in, usually.
func (f *fields) tail(key string, into *string) bool {
	v, ok := f.plain()
	if rest := len(key) - len(v); ok && rest >= 0 && key[rest:] == string(v) {
		*into = key[rest:]
		return true
	}
	*into = string(v)
	return ok
}

func (f *fields) shared(r *Reader, into *string) bool {
	v, ok := f.plain()
	if ok {
		*into = r.text(v)
	}
	return ok
}

func (f *fields) number(into *uint64) bool {
	n, err := strconv.ParseUint(string(f.value), 10, 64)
	*into = n
	return err == nil
}

func (f *fields) int(into *int) bool {
	n, err := strconv.Atoi(string(f.value))
	*into = n
	return err == nil
}

func (f *fields) time(into *time.Time) bool { return into.UnmarshalJSON(f.value) == nil }
