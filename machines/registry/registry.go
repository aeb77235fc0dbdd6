// Package registry has the machines that a program runs, in one place, which may gain a machine while the program runs.
package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/bcc94042/instar/machines"
)

// Registry holds the machines that a program runs. Every part looks a machine up here when it needs it, so that one may be added while the
// program runs; none is ever taken away. All methods are safe for concurrent use. Looking up costs an atomic load, allocates nothing, and
// never waits for an addition. The zero value is ready, and empty.
type Registry struct {
	now atomic.Pointer[registered]

	mu        sync.Mutex // held by additions, and while they are told
	listeners []*func(*machines.Machine)
}

// registered are the machines of one moment. It does not change.
type registered struct {
	all    []*machines.Machine
	byName map[string]*machines.Machine
	owners map[string]string // the name of the machine that has a name, a bucket or a consumer
}

// New makes a registry of machines, in the order in which they are shown. It fails as [Registry.Add] does.
func New(ms ...*machines.Machine) (*Registry, error) {
	r := &Registry{}
	for _, m := range ms {
		if err := r.Add(m); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Add registers a machine, behind those that are there, and returns when everybody who asked [Registry.OnAdd] was told. It fails, and changes
// nothing, when it was not made by [machines.Define], and when another machine has its name, its plural, a bucket of its views, or the name of a
// consumer of its effects or views: both would write to the same subjects, or take each other's messages.
func (r *Registry) Add(m *machines.Machine) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.load().with(m)
	if err != nil {
		return err
	}
	r.now.Store(next)
	for _, tell := range r.listeners {
		(*tell)(m)
	}
	return nil
}

// Check says why [Registry.Add] would fail now.
func (r *Registry) Check(m *machines.Machine) error {
	_, err := r.load().with(m)
	return err
}

// Get returns the machine of a name; nil when there is none.
func (r *Registry) Get(name string) *machines.Machine { return r.load().byName[name] }

// All returns the machines that are there now, in the order in which they were added. The slice is shared: it is not to be changed, and
// does not change.
func (r *Registry) All() []*machines.Machine { return r.load().all }

// OnAdd has tell called once with every machine: with those that are there before OnAdd returns, and with each one to come, in the order of
// the additions, by the time that [Registry.Get] finds it. Calls never overlap, so tell is to return soon; it must not call Add or OnAdd. After stop
// has returned, tell is called no more; tell must not call stop.
func (r *Registry) OnAdd(tell func(*machines.Machine)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	listener := &tell
	r.listeners = append(r.listeners, listener)
	for _, m := range r.load().all {
		tell(m)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.listeners = slices.DeleteFunc(r.listeners, func(l *func(*machines.Machine)) bool { return l == listener })
	}
}

var nothing registered

func (r *Registry) load() *registered {
	if now := r.now.Load(); now != nil {
		return now
	}
	return &nothing
}

// with is a copy that has one machine more.
func (now *registered) with(m *machines.Machine) (*registered, error) {
	if m == nil || len(m.States) == 0 {
		return nil, errors.New("registry: a machine is made by machines.Define")
	}
	next := &registered{all: append(slices.Clip(now.all), m), byName: map[string]*machines.Machine{m.Name: m}, owners: map[string]string{}}
	maps.Copy(next.byName, now.byName)
	maps.Copy(next.owners, now.owners)
	for _, name := range taken(m) {
		if owner, ok := now.owners[name]; ok {
			return nil, fmt.Errorf("registry: %s and %s both have the %s", owner, m.Name, name)
		}
		next.owners[name] = m.Name
	}
	return next, nil
}

// taken are the names that only one machine may have. Names and plurals are looked up together by people, and so is what is joined of several.
func taken(m *machines.Machine) []string {
	names := []string{"name " + m.Name, "bucket " + m.Plural}
	if m.Plural != m.Name {
		names = append(names, "name "+m.Plural)
	}
	for _, fx := range m.Effects {
		names = append(names, "consumer "+m.Name+"-"+fx.Name+" of effects")
	}
	for _, v := range m.Views {
		names = append(names, "bucket "+m.BucketOf(v), "consumer "+m.Name+"-"+v.Name+" of views")
	}
	return names
}
