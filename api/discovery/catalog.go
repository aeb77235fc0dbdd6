package discovery

// The catalog: Run follows the index of the instances, first everything that it holds (fill), then every change (take),
// and the index of self-preservations (guard.go). A change goes to its service (service.go); advance then publishes the
// revision and wakes those who wait for it or for the service. ask.go answers questions from there.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
)

// Machine is the name of the machine whose entities are found.
const Machine = "instance"

// Options of a catalog. Instances is needed.
type Options struct {
	Instances     *index.Index     // its items have an *instance.Record as Value
	Preservations *index.Index     // nil: no service is ever protected
	History       History          // what [Catalog.At] reads; its zero value has none
	Hears         func() bool      // whether this node hears the other ones; nil: there are none
	Now           func() time.Time // nil is time.Now
	Log           *slog.Logger     // nil discards
}

// Catalog is the [Finder] over the bucket of the instances. It is empty until it is Run.
type Catalog struct {
	o     Options
	ready chan struct{}
	past  chan struct{} // one per answer about the past
	fresh freshness

	services   sync.Map // *service by <namespace>.<service>
	namespaces sync.Map // of those
	at         atomic.Uint64
	finds      atomic.Uint64
	built      atomic.Uint64
	lost       atomic.Uint64

	mu        sync.RWMutex
	ids       map[idKey][]*service     // where an id is, or was
	strangers map[string]chan struct{} // services that are watched and do not exist yet
	waiters   []waiter
	guarded   map[string]map[string]struct{} // zones that are in self-preservation, by <namespace>.<service>
}

var _ Finder = (*Catalog)(nil)

type idKey struct{ namespace, id string }

type waiter struct {
	revision uint64
	done     chan struct{}
}

// Bounds of what waits.
const (
	Waiting      = 1 << 20 // keys that may wait for the catalog: more than there are, so that only a rebuilt index loses changes
	maxStrangers = 10_000  // watched services that do not exist
	page         = 4096    // of a list
	coolEvery    = 30 * time.Second
	maxPast      = 4 // answers about the past that are built at a time
)

// New is a catalog that follows the indexes once it is Run.
func New(o Options) *Catalog {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Catalog{
		o: o, ready: make(chan struct{}), past: make(chan struct{}, maxPast), ids: map[idKey][]*service{}, strangers: map[string]chan struct{}{}, guarded: map[string]map[string]struct{}{},
	}
	c.fresh.held, c.fresh.turned = time.Now(), make(chan struct{})
	c.fresh.since.Store(c.fresh.held.UnixNano()) // until it is complete
	return c
}

// Ready is closed when everything that was in the bucket is in the catalog. Before, what is answered may lack instances.
func (c *Catalog) Ready() <-chan struct{} { return c.ready }

// Index is the revision of the bucket up to which all changes are in every answer.
func (c *Catalog) Index() uint64 { return c.at.Load() }

// Run follows the indexes until ctx ends, and returns nil then. It must be called once.
func (c *Catalog) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	if c.o.Preservations != nil {
		beside.Go(func() { c.again(ctx, c.o.Preservations, c.followGuards) })
	}
	beside.Go(func() { c.cool(ctx) })
	beside.Go(func() { c.look(ctx) })
	c.again(ctx, c.o.Instances, c.follow)
	return nil
}

// cool drops the snapshots of services that nobody has asked for lately: those of all services would take as much memory
// as everything else here.
func (c *Catalog) cool(ctx context.Context) {
	tick := time.NewTicker(coolEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for s := range c.each {
				s.cool()
			}
		case <-ctx.Done():
			return
		}
	}
}

// again follows an index anew whenever changes were lost.
func (c *Catalog) again(ctx context.Context, ix *index.Index, follow func(context.Context, *index.Index) error) {
	select {
	case <-ix.Ready(): // a subscription from before would be lost at once
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		if err := follow(ctx, ix); errors.Is(err, index.ErrLost) {
			c.lost.Add(1)
			c.o.Log.Info("discovery: changes were missed; reading the bucket again")
		}
	}
}

// follow takes what there is and then every change, until changes are lost.
func (c *Catalog) follow(ctx context.Context, ix *index.Index) error {
	b := ix.Batches(index.Filter{}, Waiting)
	defer b.Close()
	c.fill(ix)
	for {
		changes, revision, err := b.Next(ctx)
		if err != nil {
			return err
		}
		touched := make(map[*service]struct{}, min(len(changes), 64))
		for i := range changes {
			if s := c.take(&changes[i].Item, changes[i].Deleted); s != nil {
				touched[s] = struct{}{}
			}
		}
		c.advance(revision, touched)
	}
}

// fill replaces everything by what an index lists, at whatever revision: after the bucket was restored, or lost its end, what was
// known before belongs to a history that is gone, even if as much has been written since.
func (c *Catalog) fill(ix *index.Index) {
	items, revision := everything(ix)
	other := revision < c.at.Load()
	if other {
		c.o.Log.Warn("discovery: the bucket of the instances was replaced", "revision", revision, "before", c.at.Load())
		c.at.Store(revision)
	}
	fresh := c.sorted(items)
	touched, ids := map[*service]struct{}{}, map[idKey][]*service{}
	for s := range c.each {
		if s.renew(fresh[s.key()], revision) || other {
			touched[s] = struct{}{}
		}
		for _, id := range s.ids() {
			ids[idKey{s.namespace, id}] = append(ids[idKey{s.namespace, id}], s)
		}
	}
	c.mu.Lock()
	c.ids = ids
	c.mu.Unlock()
	c.advance(revision, touched)
	c.built.Add(1)
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
	c.judge()
}

// sorted are the instances of each service, in the order of their ids. If a value cannot be read, what was known of the
// instance before stays.
func (c *Catalog) sorted(items []index.Item) map[string][]entry {
	fresh := map[string][]entry{}
	for i := range items {
		namespace, rest, _ := strings.Cut(items[i].Key, ".")
		name, id, whole := strings.Cut(rest, ".")
		if !whole {
			continue // not the key of an instance
		}
		s := c.service(namespace, name)
		if rec, ok := items[i].Value.(*instance.Record); ok && items[i].Problem == "" {
			if s == nil {
				s = c.open(rec.Namespace, rec.Service)
			}
			fresh[s.key()] = append(fresh[s.key()], entry{rec, items[i].Revision})
		} else if s != nil {
			fresh[s.key()] = append(fresh[s.key()], s.known(id)...)
		}
	}
	return fresh
}

// everything is all that an index has; the revision is the one up to which that is complete.
func everything(ix *index.Index) (items []index.Item, revision uint64) {
	for q := (index.Query{Limit: page}); ; {
		p := ix.List(q)
		if items = append(items, p.Items...); revision == 0 {
			revision = p.Revision
		}
		if q.After = p.Next; q.After == "" {
			return items, revision
		}
	}
}

// take applies one item and returns the service that it changed.
func (c *Catalog) take(it *index.Item, deleted bool) *service {
	namespace, rest, _ := strings.Cut(it.Key, ".")
	name, id, whole := strings.Cut(rest, ".")
	if !whole {
		return nil // not the key of an instance
	}
	if deleted {
		if s := c.service(namespace, name); s != nil {
			c.drop(s, id, it.Revision)
			return s
		}
		return nil
	}
	rec, ok := it.Value.(*instance.Record)
	if !ok || it.Problem != "" {
		return nil
	}
	s := c.service(namespace, name)
	if s == nil {
		s = c.open(rec.Namespace, rec.Service)
	}
	changed, born := s.put(entry{rec, it.Revision})
	if born {
		at := idKey{rec.Namespace, rec.ID}
		c.mu.Lock()
		c.ids[at] = append(c.ids[at], s)
		c.mu.Unlock()
	}
	if !changed {
		return nil
	}
	return s
}

func (c *Catalog) drop(s *service, id string, revision uint64) {
	if !s.drop(id, revision) {
		return
	}
	at := idKey{s.namespace, id}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids[at] = slices.DeleteFunc(c.ids[at], func(o *service) bool { return o == s }); len(c.ids[at]) == 0 {
		delete(c.ids, at)
	}
}

// open begins a service.
func (c *Catalog) open(namespace, name string) *service {
	s := &service{namespace: namespace, name: name}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.guarded = len(c.guarded[s.key()]) > 0
	c.services.Store(s.key(), s)
	c.namespaces.Store(s.namespace, nil)
	return s
}

func (c *Catalog) service(namespace, name string) *service {
	s, ok := c.services.Load(namespace + "." + name)
	if !ok {
		return nil
	}
	return s.(*service)
}

// each yields every service.
func (c *Catalog) each(yield func(*service) bool) {
	c.services.Range(func(_, s any) bool { return yield(s.(*service)) })
}

// advance publishes that everything up to the revision is there, and then wakes those who wait for it.
func (c *Catalog) advance(revision uint64, touched map[*service]struct{}) {
	if revision > c.at.Load() {
		c.at.Store(revision)
	}
	for s := range touched {
		s.wakeAll()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.strangers) > 0 {
		for s := range touched {
			if w := c.strangers[s.key()]; w != nil {
				close(w)
				delete(c.strangers, s.key())
			}
		}
	}
	if len(c.waiters) > 0 {
		c.waiters = slices.DeleteFunc(c.waiters, func(w waiter) bool {
			if w.revision > revision {
				return false
			}
			close(w.done)
			return true
		})
	}
}

// Wait blocks until every change up to the revision is in the answers. A revision that was never written is waited for
// until ctx ends.
func (c *Catalog) Wait(ctx context.Context, revision uint64) error {
	c.mu.Lock()
	if c.at.Load() >= revision {
		c.mu.Unlock()
		return nil
	}
	w := waiter{revision, make(chan struct{})}
	c.waiters = append(c.waiters, w)
	c.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiters = slices.DeleteFunc(c.waiters, func(o waiter) bool { return o.done == w.done })
		return fmt.Errorf("discovery: at revision %d, not yet at %d: %w", c.at.Load(), revision, ctx.Err())
	}
}

// Locate returns the services of a namespace that have, or had, an instance of that id.
func (c *Catalog) Locate(namespace, id string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var names []string
	for _, s := range c.ids[idKey{namespace, id}] {
		names = append(names, s.name)
	}
	return names
}

// Stats are counts; Services and Instances are of now, the others since the start.
type Stats struct {
	Services, Instances, Found, Draining, Protected int

	Finds  uint64 // questions answered
	Builds uint64 // how often everything was read
	Lost   uint64 // how often changes were missed, so that everything was read again
}

// Stats returns the counts. It visits every service.
func (c *Catalog) Stats() Stats {
	st := Stats{Finds: c.finds.Load(), Builds: c.built.Load(), Lost: c.lost.Load()}
	for s := range c.each {
		sum := s.summary(c.o.Now())
		st.Services++
		st.Instances += sum.Instances
		st.Found += sum.Found
		st.Draining += sum.Draining
		if sum.Protected {
			st.Protected++
		}
	}
	return st
}
