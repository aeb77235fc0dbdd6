// Package entities reads what is stored of all machines. One entity comes from the leader of its bucket and shows every write that was
// acknowledged before; lists and counts come from the indexes of the process; what happened comes from the stream of events.
package entities

// The Store, which api/server.go opens once and through which handlers read everything that is stored: values and views from
// their buckets in the client's turn (Read, View, InTurn), lists and counts from the indexes (Index). Beside that it has what
// such reads need: waiting for minRevision, refusing while an index is incomplete, and marking answers that may be stale.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/sse"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/streams"
)

// Store reads what is stored of all machines: the newest value from the leader of its bucket, lists and counts from the indexes of the
// process, the past from the stream of events.
type Store struct {
	Machines *registry.Registry
	Names    streams.Names
	JS       jetstream.JetStream
	indexes  *index.Map
	buckets  atomic.Pointer[buckets] // of machines and views; it is replaced, and not changed
	behind   func() time.Duration    // for how long this node may be behind the others; nil is not at all

	rest *rest.Server
}

// buckets are those that are open, by plain name.
type buckets map[string]*kv.Bucket[json.RawMessage]

// Options are what a [Store] works with. Behind may be nil.
type Options struct {
	Machines *registry.Registry
	Names    streams.Names
	JS       jetstream.JetStream
	Indexes  *index.Map
	Behind   func() time.Duration // for how long this node may be behind the others; nil is not at all
	Rest     *rest.Server
}

// Open opens the buckets of all machines and their views.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{Machines: o.Machines, Names: o.Names, JS: o.JS, indexes: o.Indexes, behind: o.Behind, rest: o.Rest}
	s.buckets.Store(&buckets{})
	for _, m := range s.Machines.All() {
		if err := s.Open(ctx, m); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Open opens the buckets of a machine and its views, before it is registered. It must not be called concurrently.
func (s *Store) Open(ctx context.Context, m *machines.Machine) error {
	if s.indexes.Get(m.Name) == nil {
		return fmt.Errorf("api: machine %s has no index", m.Name)
	}
	names := []string{m.Plural}
	for _, v := range m.Views {
		names = append(names, m.BucketOf(v))
	}
	all := maps.Clone(*s.buckets.Load())
	for _, name := range names {
		b, err := kv.Open(ctx, s.JS, s.Names.Bucket(name), kv.JSON[json.RawMessage]())
		if err != nil {
			return fmt.Errorf("api: %w", err)
		}
		all[name] = b
	}
	s.buckets.Store(&all)
	return nil
}

// bucket is one of a machine that was opened, by its plain name.
func (s *Store) bucket(name string) *kv.Bucket[json.RawMessage] { return (*s.buckets.Load())[name] }

// Collector measures how many entities are in each state, and how far the indexes are behind.
func (s *Store) Collector() prometheus.Collector { return entityCounts{s} }

// entityCounts reads the indexes when it is asked.
type entityCounts struct{ s *Store }

var (
	entitiesDesc = prometheus.NewDesc("instar_entities", "Entities by state.", []string{"machine", "state"}, nil)
	lagDesc      = prometheus.NewDesc("instar_index_lag", "Known revisions of the bucket that are not in the index yet.", []string{"machine"}, nil)
)

func (c entityCounts) Describe(ch chan<- *prometheus.Desc) {
	ch <- entitiesDesc
	ch <- lagDesc
}

func (c entityCounts) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.s.Machines.All() {
		ix := c.s.indexes.Get(m.Name)
		counts := ix.Counts("")
		for _, state := range m.States {
			ch <- prometheus.MustNewConstMetric(entitiesDesc, prometheus.GaugeValue, float64(counts[state.Name]), m.Name, state.Name)
		}
		lag := ix.Lag()
		ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, float64(lag.Known-min(lag.Applied, lag.Known)), m.Name)
	}
}

// Stored is the newest value of an entity, from the leader of its bucket, or what is left of one that was dropped; the error may be [kv.ErrNotFound] or a
// [*kv.CorruptError].
func (s *Store) Stored(ctx context.Context, m *machines.Machine, key string) (kv.Entry[json.RawMessage], error) {
	return s.bucket(m.Plural).GetDropped(ctx, key)
}

// Read is [Store.Stored] in the turn of the client.
func (s *Store) Read(q *rest.Request, m *machines.Machine, key string) (e kv.Entry[json.RawMessage], err error) {
	err = q.InTurn(func() (err error) {
		e, err = s.Stored(q.Context(), m, key)
		return err
	})
	return e, err
}

// View is the newest value of a view of an entity, in the turn of the client, with the same errors.
func (s *Store) View(q *rest.Request, m *machines.Machine, v machines.View, key string) (kv.Entry[json.RawMessage], error) {
	return InTurn(q, s.bucket(m.BucketOf(v)), key)
}

// InTurn reads a key from the leader of a bucket in the turn of the client.
func InTurn[T any](q *rest.Request, b *kv.Bucket[T], key string) (e kv.Entry[T], err error) {
	err = q.InTurn(func() (err error) {
		e, err = b.Get(q.Context(), key)
		return err
	})
	return e, err
}

// Index is that of a machine, by its name; nil if there is no such machine.
func (s *Store) Index(machine string) *index.Index { return s.indexes.Get(machine) }

// Indexed fails until the index of a machine is complete: a list that lacks entities would be taken for the whole.
func (s *Store) Indexed(machine string) error {
	select {
	case <-s.indexes.Get(machine).Ready():
		return nil
	default:
		return problem.Unavailable("what there is of " + machine + " is still being read")
	}
}

// WaitIndex waits until the index of a machine has what minRevision asks for.
func (s *Store) WaitIndex(q *rest.Request, m *machines.Machine) error {
	rev, ix := q.Number("minRevision"), s.indexes.Get(m.Name)
	if rev <= ix.Revision() {
		return nil
	}
	return q.Hold(func(ctx context.Context) error {
		if err := s.Written(q, ctx, m, rev); err != nil {
			return err
		}
		if ix.Wait(ctx, rev) != nil {
			return rest.Late("the index has not reached minRevision yet")
		}
		return nil
	})
}

// Written refuses a revision that was never written, which would be waited for in vain.
func (s *Store) Written(q *rest.Request, ctx context.Context, m *machines.Machine, rev uint64) error {
	if rev <= s.indexes.Get(m.Name).Lag().Known {
		return nil
	}
	return q.InTurn(func() error {
		st, err := streams.Led(ctx, s.JS, streams.BucketStream(s.Names.Bucket(m.Plural)))
		if err == nil && rev > st.CachedInfo().State.LastSeq {
			return problem.Invalid("query.minRevision", "was never written")
		}
		return err
	})
}

// Plural is the plural of a machine, or of a parent that is no machine.
func Plural(ms *registry.Registry, name string) string {
	if m := ms.Get(name); m != nil {
		return m.Plural
	}
	return name + "s"
}

// PathOf is where an entity is read.
func (s *Store) PathOf(m *machines.Machine, namespace, parent, id string) string {
	path := "/v1/" + m.Plural + "/" + id
	if m.Parent != "" {
		path = "/v1/" + Plural(s.Machines, m.Parent) + "/" + parent + "/" + m.Plural + "/" + id
	}
	if namespace != auth.DefaultNamespace {
		path += "?namespace=" + namespace
	}
	return path
}

// Stale is for how long what this node has in memory of some machines may be behind: since it last heard from their buckets,
// or, where there is discovery, from the other nodes. 0 is not at all.
func (s *Store) Stale(ms ...*machines.Machine) (longest time.Duration) {
	for _, m := range ms {
		longest = max(longest, s.indexes.Get(m.Name).Stale())
	}
	if s.behind != nil {
		longest = max(longest, s.behind())
	}
	return longest
}

// MarkStale says in a header of the answer, and returns for its body, in seconds, how old it may be.
func (s *Store) MarkStale(q *rest.Request, m *machines.Machine) float64 {
	stale := s.Stale(m)
	if stale > 0 {
		q.W.Header()[rest.HeaderStale] = []string{sse.Seconds(stale)}
	}
	return stale.Seconds()
}

// MachineList is every machine as data.
type MachineList struct {
	Items []Graph `json:"items"`
}
