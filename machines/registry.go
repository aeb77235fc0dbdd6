package machines

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Registry holds the machines that a program runs. Every part looks a machine up here when it needs it, so that one may be added while the
// program runs; none is ever taken away. All methods are safe for concurrent use. Looking up costs an atomic load, allocates nothing, and
// never waits for an addition. The zero value is ready, and empty.
type Registry struct {
	now atomic.Pointer[registered]

	mu        sync.Mutex // held by additions, and while they are told
	listeners []*func(*Machine)
}

// registered are the machines of one moment. It does not change.
type registered struct {
	all              []*Machine
	byName, byPlural map[string]*Machine
	owners           map[string]string // the name of the machine that has a name, a bucket or a consumer
}

// NewRegistry makes a registry of machines, in the order in which they are shown. It fails as [Registry.Add] does.
func NewRegistry(ms ...*Machine) (*Registry, error) {
	r := &Registry{}
	for _, m := range ms {
		if err := r.Add(m); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Add registers a machine, behind those that are there, and returns when everybody who asked [Registry.OnAdd] was told. It fails, and changes
// nothing, when another machine has its name, its plural, a bucket of its views, or the name of a consumer of its effects or views: both
// would write to the same subjects, or take each other's messages.
func (r *Registry) Add(m *Machine) error {
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
func (r *Registry) Check(m *Machine) error {
	_, err := r.load().with(m)
	return err
}

// Get returns the machine of a name; nil when there is none.
func (r *Registry) Get(name string) *Machine { return r.load().byName[name] }

// ByPlural returns the machine of a plural; nil when there is none.
func (r *Registry) ByPlural(plural string) *Machine { return r.load().byPlural[plural] }

// All returns the machines that are there now, in the order in which they were added. The slice is shared: it is not to be changed, and
// does not change.
func (r *Registry) All() []*Machine { return r.load().all }

// OnAdd has tell called once with every machine: with those that are there before OnAdd returns, and with each one to come, in the order of
// the additions, by the time that [Registry.Get] finds it. Calls never overlap, so tell is to return soon; it must not call Add or OnAdd. After stop
// has returned, tell is called no more; tell must not call stop.
func (r *Registry) OnAdd(tell func(*Machine)) (stop func()) {
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
		r.listeners = slices.DeleteFunc(r.listeners, func(l *func(*Machine)) bool { return l == listener })
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
func (now *registered) with(m *Machine) (*registered, error) {
	next := &registered{
		all: append(slices.Clip(now.all), m), byName: map[string]*Machine{}, byPlural: map[string]*Machine{}, owners: map[string]string{},
	}
	for name, owner := range now.owners {
		next.owners[name] = owner
	}
	for _, name := range m.taken() {
		if owner, ok := now.owners[name]; ok {
			return nil, fmt.Errorf("machines: %s and %s both have the %s", owner, m.Name, name)
		}
		next.owners[name] = m.Name
	}
	for _, one := range next.all {
		next.byName[one.Name], next.byPlural[one.Plural] = one, one
	}
	return next, nil
}

// taken are the names that only one machine may have. Names and plurals are looked up together by people, and so is what is joined of several.
func (m *Machine) taken() []string {
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
