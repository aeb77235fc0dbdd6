package discovery

// One service in memory: its instances, the ids of those that have ended, and who waits for a change. The catalog changes it (put, renew, drop, guard);
// questions read a Snapshot, which is built at the first question after a change and kept until the next one, or until a weight changes with time.

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// entry is one instance at one revision. It is never changed.
type entry struct {
	rec      *instance.Record
	revision uint64
}

// service is what is known of one service. Only the catalog's Run changes it.
type service struct {
	namespace, name string
	now             atomic.Pointer[Snapshot] // nil: it has changed since anybody asked

	mu      sync.Mutex
	all     []entry             // by id; those that have not ended
	ended   map[string]struct{} // ids of those that have
	changed uint64
	guarded bool
	wake    chan struct{} // closed at the next change; nil when nobody waits
	stir    chan struct{} // the same, also when only the protection changes
}

func (s *service) key() string { return s.namespace + "." + s.name }

func (s *service) find(id string) (int, bool) {
	return slices.BinarySearchFunc(s.all, id, func(e entry, id string) int { return cmp.Compare(e.rec.ID, id) })
}

// put takes an instance. What is not newer than what is known changes nothing; born says that its id was not known.
func (s *service) put(e entry) (changed, born bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, there := s.find(e.rec.ID)
	_, dead := s.ended[e.rec.ID]
	switch over := e.rec.State == instance.Deregistered; {
	case there && s.all[i].revision >= e.revision:
		return false, false
	case over && dead:
		return false, false // found neither before nor after
	case over:
		if there {
			s.all = slices.Delete(s.all, i, i+1)
		}
		if s.ended == nil {
			s.ended = map[string]struct{}{}
		}
		s.ended[e.rec.ID] = struct{}{}
	case there:
		s.all[i] = e
	default:
		s.all = slices.Insert(s.all, i, e)
		delete(s.ended, e.rec.ID)
	}
	s.change(e.revision)
	return true, !there && !dead
}

// renew replaces everything by what a list says that is complete up to a revision; all are in the order of their ids. It
// reports whether anything is different.
func (s *service) renew(all []entry, revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, gone := s.all, s.ended
	s.all, s.ended = nil, nil
	changed := uint64(0)
	for _, e := range all {
		if e.rec.State == instance.Deregistered {
			if s.ended == nil {
				s.ended = map[string]struct{}{}
			}
			s.ended[e.rec.ID] = struct{}{}
		} else {
			s.all = append(s.all, e)
		}
		changed = max(changed, e.revision)
	}
	same := slices.EqualFunc(old, s.all, entry.same) && maps.Equal(gone, s.ended)
	switch {
	case same:
		s.changed = min(s.changed, revision)
	case changed <= s.changed: // something is gone, or is of another history
		s.changed = revision
	default:
		s.changed = changed
	}
	if !same {
		s.now.Store(nil)
	}
	return !same
}

// same compares more than the revisions: in two histories of a bucket, one revision may hold different values.
func (e entry) same(o entry) bool {
	a, b := e.rec, o.rec
	return e.revision == o.revision && a.ID == b.ID && a.State == b.State && a.Since.Equal(b.Since) && a.Generation == b.Generation && a.Version == b.Version
}

// known is the instance of an id, or none.
func (s *service) known(id string) []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, there := s.find(id); there {
		return s.all[i : i+1 : i+1]
	}
	return nil
}

// drop forgets an id, and reports whether it was known.
func (s *service) drop(id string, revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, there := s.find(id)
	_, dead := s.ended[id]
	if there && s.all[i].revision >= revision {
		return false
	}
	delete(s.ended, id)
	if there {
		s.all = slices.Delete(s.all, i, i+1)
		s.change(revision)
	}
	return there || dead
}

// change has the next question build a new snapshot. The lock is held.
func (s *service) change(revision uint64) {
	s.changed = max(s.changed, revision)
	s.now.Store(nil)
}

// ids are all that are known.
func (s *service) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.all)+len(s.ended))
	for _, e := range s.all {
		ids = append(ids, e.rec.ID)
	}
	for id := range s.ended {
		ids = append(ids, id)
	}
	return ids
}

func (s *service) guard(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guarded == on {
		return
	}
	s.guarded = on
	s.now.Store(nil)
	if s.stir != nil {
		close(s.stir)
		s.stir = nil
	}
}

func (s *service) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range []*chan struct{}{&s.wake, &s.stir} {
		if *w != nil {
			close(*w)
			*w = nil
		}
	}
}

// closed is a channel that is closed already.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// watch returns a channel that is closed at the next change, or is closed when there was one since.
func (s *service) watch(after uint64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed > after {
		return closed
	}
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return s.wake
}

// snapshot is the service as it is at a time.
func (s *service) snapshot(at time.Time) *Snapshot {
	if sn := s.now.Load(); sn != nil && sn.holds(at) {
		if !sn.asked.Load() { // stores by all who ask would contend
			sn.asked.Store(true)
		}
		return sn
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sn := s.now.Load(); sn != nil && sn.holds(at) {
		return sn
	}
	sn := picture(s.namespace, s.name, s.all, at)
	sn.asked.Store(true)
	sn.Changed, sn.Protected = s.changed, s.guarded
	s.now.Store(sn)
	return sn
}

// Summary is a service in numbers.
type Summary struct {
	Service   string         `json:"service"`
	Namespace string         `json:"namespace"`
	Instances int            `json:"instances" doc:"Instances that have not ended"`
	Found     int            `json:"found" doc:"Instances that discovery returns"`
	Draining  int            `json:"draining"`
	States    map[string]int `json:"states"`
	Changed   uint64         `json:"changed" doc:"Revision of the last change"`
	Protected bool           `json:"protected,omitempty" doc:"The service is in self-preservation: its instances may be gone"`
}

// cool drops a snapshot that nobody has asked for since the last call. The next question builds a new one.
func (s *service) cool() {
	if sn := s.now.Load(); sn != nil && !sn.asked.Swap(false) {
		s.now.CompareAndSwap(sn, nil)
	}
}

func (s *service) summary(at time.Time) Summary {
	sum := Summary{Service: s.name, Namespace: s.namespace, States: map[string]int{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	sum.Instances, sum.Changed, sum.Protected = len(s.all), s.changed, s.guarded
	for _, e := range s.all {
		r := e.rec
		switch sum.States[r.State]++; {
		case r.State == instance.Draining:
			sum.Draining++
		case instance.Weight(&r.Data, r.State, r.Since, at) > 0:
			sum.Found++
		}
	}
	return sum
}
