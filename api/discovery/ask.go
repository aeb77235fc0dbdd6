package discovery

// The questions that the catalog answers: the instances of one service (Find, Snapshot, Whole), services and instances of a namespace
// (Summaries, Everyone), the next change (Watch, Stir, Decided). They come from packages instances, nameserver and xds. Answers are taken from
// the snapshot of a service (service.go), and filtered and chosen by weight here (pick); questions about the past are passed to history.go (At).

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/bcc94042/instar/machines/instance"
)

// Snapshot is a service as it is now, or nil when it was never heard of.
func (c *Catalog) Snapshot(namespace, service string) *Snapshot {
	s := c.service(namespace, service)
	if s == nil {
		return nil
	}
	return s.snapshot(c.o.Now())
}

// Find answers from memory. The answer to a plain query is the list of the snapshot itself, the same one for as long as
// nothing changes: nothing of it may be changed.
func (c *Catalog) Find(q Query) Result {
	c.finds.Add(1)
	r := Result{Index: c.at.Load()} // before the service: what is in it may be newer, never older
	sn := c.Snapshot(q.Namespace, q.Service)
	if sn == nil {
		return r
	}
	r.Changed, r.Protected, r.Known = sn.Changed, sn.Protected, true
	r.Endpoints = q.pick(sn)
	if q.Plain() {
		r.whole = sn
	}
	return r
}

// Watch returns a channel that is closed when the service's Changed moves beyond after. It is also closed when after is
// ahead of the catalog and the service changes, so a caller that is woken asks again.
func (c *Catalog) Watch(namespace, service string, after uint64) <-chan struct{} {
	if s := c.service(namespace, service); s != nil {
		return s.watch(after)
	}
	name := namespace + "." + service
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.service(namespace, service); s != nil { // meanwhile; it is woken under the lock
		return s.watch(after)
	}
	if len(c.strangers) >= maxStrangers {
		for _, w := range c.strangers { // they ask again; those that have gone are forgotten
			close(w)
		}
		clear(c.strangers)
	}
	w := c.strangers[name]
	if w == nil {
		w = make(chan struct{})
		c.strangers[strings.Clone(name)] = w
	}
	return w
}

// Stir is Watch for callers that also show whether the service is in self-preservation: the channel is closed at the next
// change of either after the snapshot, which is nil for a service that was never heard of.
func (c *Catalog) Stir(namespace, service string) (*Snapshot, <-chan struct{}) {
	s := c.service(namespace, service)
	if s == nil {
		w := c.Watch(namespace, service, 0)
		return c.Snapshot(namespace, service), w
	}
	s.mu.Lock()
	if s.stir == nil {
		s.stir = make(chan struct{})
	}
	w := s.stir
	s.mu.Unlock()
	return s.snapshot(c.o.Now()), w
}

// Pending is the id of the instance whose registration was stored at a revision, while it is neither admitted nor failed.
func (c *Catalog) Pending(namespace, service string, revision uint64) (id string, pending bool) {
	if revision == 0 {
		return "", false
	}
	return c.pending(namespace, service, func(e *entry) bool { return e.revision == revision })
}

// Decided waits until the registration of an instance is admitted, or has failed. As a rule that takes a moment.
func (c *Catalog) Decided(ctx context.Context, namespace, service, id string) error {
	for {
		_, stirred := c.Stir(namespace, service)
		if _, pending := c.pending(namespace, service, func(e *entry) bool { return e.rec.ID == id }); !pending {
			return nil
		}
		select {
		case <-stirred:
		case <-ctx.Done():
			return fmt.Errorf("discovery: %s of %s.%s is not admitted yet: %w", id, namespace, service, ctx.Err())
		}
	}
}

func (c *Catalog) pending(namespace, service string, is func(*entry) bool) (string, bool) {
	s := c.service(namespace, service)
	if s == nil {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if e := &s.all[i]; e.rec.State == instance.Pending && is(e) {
			return e.rec.ID, true
		}
	}
	return "", false
}

// Inhabited says whether a namespace has services that have or had instances. It takes no lock.
func (c *Catalog) Inhabited(namespace string) bool {
	_, there := c.namespaces.Load(namespace)
	return there
}

// Summaries are the services of a namespace, or of all when it is empty, in the order of namespaces and names; those
// whose instances have all ended as well.
func (c *Catalog) Summaries(namespace string) []Summary {
	all := []Summary{}
	for s := range c.each {
		if namespace == "" || s.namespace == namespace {
			all = append(all, s.summary(c.o.Now()))
		}
	}
	slices.SortFunc(all, func(a, b Summary) int {
		return strings.Compare(a.Namespace+"."+a.Service, b.Namespace+"."+b.Service)
	})
	return all
}

// Plain reports whether the answer is simply all that is found.
func (q Query) Plain() bool {
	return !q.Draining && q.Choose == 0 && q.Zone == "" && q.Version == "" && q.Prefer == "" && len(q.Tags) == 0 && len(q.Meta) == 0
}

// pick is the answer from a snapshot: its own list for a plain query, else one that is the caller's.
func (q Query) pick(sn *Snapshot) []Endpoint {
	if q.Plain() {
		return sn.Found
	}
	out := make([]Endpoint, 0, len(sn.Found))
	add := func(list []Endpoint) {
		for i := range list {
			if q.match(&list[i]) {
				out = append(out, list[i])
			}
		}
	}
	add(sn.Found)
	if q.Draining {
		add(sn.Draining)
		slices.SortFunc(out, func(a, b Endpoint) int { return strings.Compare(a.InstanceID, b.InstanceID) })
	}
	if q.Prefer != "" {
		out = prefer(out, q.Prefer)
	}
	if q.Choose > 0 {
		out = choose(out, q.Choose, q.Key)
	}
	return out
}

func (q Query) match(e *Endpoint) bool {
	if q.Zone != "" && q.Zone != e.Zone || q.Version != "" && q.Version != e.Version {
		return false
	}
	for _, tag := range q.Tags {
		if !slices.Contains(e.Tags, tag) {
			return false
		}
	}
	for k, want := range q.Meta {
		if v, there := e.Payload[k]; !there || v != want {
			return false
		}
	}
	return true
}

// prefer keeps only the instances of a zone, if one of them may get traffic.
func prefer(all []Endpoint, zone string) []Endpoint {
	if !slices.ContainsFunc(all, func(e Endpoint) bool { return e.Zone == zone && e.Weight > 0 }) {
		return all
	}
	return slices.DeleteFunc(all, func(e Endpoint) bool { return e.Zone != zone })
}

// choose takes n of them by weight, the best first. With a key the choice is by weighted rendezvous hashing: the same
// for everybody who asks with the same key, and only the keys of an instance that goes are given to others. Without one
// it is random: n draws without replacement.
func choose(all []Endpoint, n int, key string) []Endpoint {
	type scored struct {
		at    int
		score float64
	}
	scores := make([]scored, 0, len(all))
	for i := range all {
		if all[i].Weight <= 0 {
			continue
		}
		u := rand.Float64()
		if key != "" {
			u = fraction(key, all[i].InstanceID)
		}
		// The largest of w/-ln(u) is one of weight w with the probability w/sum, of all draws the next one likewise
		// (Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006).
		scores = append(scores, scored{i, float64(all[i].Weight) / -math.Log(max(u, math.SmallestNonzeroFloat64))})
	}
	slices.SortFunc(scores, func(a, b scored) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return strings.Compare(all[a.at].InstanceID, all[b.at].InstanceID)
	})
	out := make([]Endpoint, 0, min(n, len(scores)))
	for _, s := range scores[:min(n, len(scores))] {
		out = append(out, all[s.at])
	}
	return out
}

// fraction is a number in [0,1) that only key and id decide: FNV-1a, 64 bits, and the finalizer of MurmurHash3, whose
// upper 53 bits are taken. Clients may compute it as well: it does not change.
func fraction(key, id string) float64 {
	h := fnv.New64a()
	h.Write([]byte(key)) // never fails
	h.Write([]byte{0})
	h.Write([]byte(id))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// Whole is Snapshot with an empty one for a service that was never heard of. It counts as a question.
func (c *Catalog) Whole(namespace, service string) *Snapshot {
	c.finds.Add(1)
	if sn := c.Snapshot(namespace, service); sn != nil {
		return sn
	}
	return &Snapshot{Namespace: namespace, Service: service}
}

// At answers as at a moment of the past; see [History.At]. Up to maxPast such answers are built at a time.
func (c *Catalog) At(ctx context.Context, q Query, at Moment) (Result, AsOf, error) {
	if c.o.History.JS == nil {
		return Result{}, AsOf{}, errors.New("discovery: there is no history")
	}
	select {
	case c.past <- struct{}{}:
		defer func() { <-c.past }()
	case <-ctx.Done():
		return Result{}, AsOf{}, ctx.Err()
	}
	return c.o.History.At(ctx, q, at)
}

// Everyone are all instances that are admitted and have not ended, whatever their health, of a namespace and a service; an
// empty name means all. They are in the order of namespaces, services and ids; the weight of one that gets no traffic is 0.
func (c *Catalog) Everyone(namespace, service string) []Endpoint {
	var all []Endpoint
	now := c.o.Now()
	for s := range c.each {
		if namespace != "" && s.namespace != namespace || service != "" && s.name != service {
			continue
		}
		s.mu.Lock()
		for _, e := range s.all {
			if r := e.rec; r.State != instance.Pending {
				all = append(all, endpoint(e, max(instance.Weight(&r.Data, r.State, r.Since, now), 0)))
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Endpoint) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Service, b.Service), strings.Compare(a.InstanceID, b.InstanceID))
	})
	return all
}
