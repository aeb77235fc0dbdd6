package discovery

import (
	"bytes"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// Snapshot is a service at one time. It is shared: nothing of it may be changed.
type Snapshot struct {
	Namespace, Service string

	Changed   uint64 // revision of the last change
	Protected bool
	Found     []Endpoint // may get traffic, by id
	Draining  []Endpoint // end, by id

	until time.Time // when a weight changes by itself; zero is never
	body  atomic.Pointer[[]byte]
	tag   atomic.Pointer[string]
	asked atomic.Bool // since the catalog looked last
}

// ramp is how long the weight of an instance that warms up is taken for constant.
const ramp = 100 * time.Millisecond

// none is the payload of instances without one: an object, as readers expect.
var none = map[string]string{}

// picture makes a snapshot of instances that are in the order of their ids.
func picture(namespace, service string, all []entry, at time.Time) *Snapshot {
	sn := &Snapshot{Namespace: namespace, Service: service}
	for _, e := range all {
		r := e.rec
		sn.hold(r, at)
		w := instance.Weight(&r.Data, r.State, r.Since, at)
		switch {
		case r.State == instance.Draining:
			sn.Draining = append(sn.Draining, endpoint(e, max(w, 0)))
		case w > 0: // which says that it is routable
			sn.Found = append(sn.Found, endpoint(e, w))
		}
	}
	return sn
}

// hold bounds how long the snapshot is good because of one instance.
func (sn *Snapshot) hold(r *instance.Record, at time.Time) {
	bound := func(t time.Time) {
		if t.After(at) && (sn.until.IsZero() || t.Before(sn.until)) {
			sn.until = t
		}
	}
	if r.State == instance.Warming || !r.Data.WarmSince.IsZero() {
		bound(at.Add(ramp))
	}
	if m := r.Data.Maintenance; m != nil && !m.Until.IsZero() {
		bound(m.Until)
	}
}

// holds reports whether the weights are still those of that time.
func (sn *Snapshot) holds(at time.Time) bool { return sn.until.IsZero() || at.Before(sn.until) }

// Until is when a weight changes by itself; zero is never.
func (sn *Snapshot) Until() time.Time { return sn.until }

func endpoint(e entry, weight int) Endpoint {
	r := e.rec
	ep := Endpoint{
		Namespace: r.Namespace, Service: r.Service, InstanceID: r.ID, NodeAddress: r.Data.NodeAddress, Payload: r.Data.Payload, Zone: r.Data.Zone,
		Version: r.Data.Version, Tags: r.Data.Tags, Weight: weight, State: r.State, Generation: r.Generation, Revision: e.revision, Since: r.Since,
	}
	if ep.Payload == nil {
		ep.Payload = none
	}
	return ep
}

// Instances is the JSON list of Found. It is written once.
func (sn *Snapshot) Instances() []byte {
	if b := sn.body.Load(); b != nil {
		return *b
	}
	b := List(sn.Found)
	sn.body.Store(&b)
	return b
}

// List is the JSON list of endpoints.
func List(endpoints []Endpoint) []byte {
	if len(endpoints) == 0 {
		return []byte("[]")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(endpoints) != nil { // texts and numbers: it cannot fail
		return []byte("[]")
	}
	return bytes.TrimSpace(b.Bytes())
}
