// Package reader reads stored instances by the thousand: what an index of all of them keeps.
package reader

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/bcc94042/instar/internal/jsonscan"
	"github.com/bcc94042/instar/machines/instance"
)

// Reader decodes stored instances as [instance.Decode] does, and lets those that it has decoded share what they have in common:
// most texts of a registration are those of its neighbours, terms and payloads as well. So a record is a fifth of the size,
// and decoding allocates little. It is for one goroutine; its zero value is ready.
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
	machine := false
	whole := usual(value, func(name []byte, t token) bool {
		switch string(name) {
		case "machine":
			machine = string(t) == `"instance"`
		case "namespace":
			return t.shared(r, &rec.Namespace)
		case "parent":
			return t.shared(r, &rec.Service)
		case "id":
			return t.tail(r.key, &rec.ID)
		case "state":
			return t.shared(r, &rec.State)
		case "since":
			return t.time(&rec.Since)
		case "generation":
			return t.number(&rec.Generation)
		case "version":
			return t.number(&rec.Version)
		case "data":
			return r.quickData(&rec.Data, t)
		}
		return true
	})
	return whole && machine && rec.Namespace != "" && rec.Service != "" && rec.ID != "" && rec.State != "" && rec.Data.Terms != nil
}

func (r *Reader) quickData(d *instance.Known, value []byte) bool {
	var check, policy []byte
	var at time.Time
	whole := usual(value, func(name []byte, t token) bool {
		switch string(name) {
		case "nodeAddress":
			return t.text(&d.NodeAddress)
		case "payload":
			d.Payload = r.payload(t, nil)
			return d.Payload != nil
		case "zone":
			return t.shared(r, &d.Zone)
		case "version":
			return t.shared(r, &d.Version)
		case "weight":
			return t.int(&d.Weight)
		case "check":
			check = t
		case "policy":
			policy = t
		case "healthCheckRetries":
			return t.int(&d.Retries)
		case "evidence":
			return evidenceIsOne(t)
		case "protected":
			d.Protected = string(t) == "true"
			return d.Protected
		case "registeredAt", "admitUntil":
			return t.time(&at)
		case "tags":
			return json.Unmarshal(t, &d.Tags) == nil
		default:
			return false
		}
		return true
	})
	r.shareTags(d)
	d.Terms = r.termsOf(check, policy, nil)
	return whole && d.Terms != nil
}

// evidenceIsOne reports whether it is what evidence usually looks like; nobody who keeps records wants more of it.
func evidenceIsOne(value []byte) bool {
	var n int
	var g uint64
	var at time.Time
	return usual(value, func(name []byte, t token) bool {
		ok := false
		switch string(name) {
		case "observer", "kind", "output":
			_, ok = t.plain()
		case "consecutive", "status", "weight":
			ok = t.int(&n)
		case "at":
			ok = t.time(&at)
		case "generation":
			ok = t.number(&g)
		}
		return ok
	})
}

// token is a value as it is written.
type token []byte

// errUnusual ends the quick way.
var errUnusual = errors.New("not what an instance usually looks like")

// usual calls member for each member of an object until it returns false, and reports whether it never did.
func usual(value []byte, member func(name []byte, t token) bool) bool {
	return jsonscan.Object(value, func(name, value []byte) error {
		if member(name, value) {
			return nil
		}
		return errUnusual
	}) == nil
}

// plain is a text without escapes, in ASCII.
func (t token) plain() ([]byte, bool) {
	v := t
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

func (t token) text(into *string) bool {
	v, ok := t.plain()
	*into = string(v)
	return ok
}

// tail is a text that the key ends in, usually.
func (t token) tail(key string, into *string) bool {
	v, ok := t.plain()
	if rest := len(key) - len(v); ok && rest >= 0 && key[rest:] == string(v) {
		*into = key[rest:]
		return true
	}
	*into = string(v)
	return ok
}

func (t token) shared(r *Reader, into *string) bool {
	v, ok := t.plain()
	if ok {
		*into = r.text(v)
	}
	return ok
}

func (t token) number(into *uint64) bool {
	n, err := strconv.ParseUint(string(t), 10, 64)
	*into = n
	return err == nil
}

func (t token) int(into *int) bool {
	n, err := strconv.Atoi(string(t))
	*into = n
	return err == nil
}

func (t token) time(into *time.Time) bool { return into.UnmarshalJSON(t) == nil }
