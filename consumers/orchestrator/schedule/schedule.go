package schedule

// Scheduler holds every task that waits or has a slot. A waiting task is in exactly one place: in the heap of those whose time has not come (future), among those that wait for
// another one (waiters, by what they wait for), or in a heap of its repository (repo.go). Wait finds the place, Next takes from the repositories in turn, and what happens
// elsewhere (Drop, Release, Succeeded, SetEntry, SetRepository) moves tasks from one place to another.

import (
	"container/heap"
	"time"
)

// Task is what is to be scheduled.
type Task struct {
	Key        string // <namespace>.<repository>.<task>
	Repository string // <namespace>.<repository>
	Namespace  string
	Type, Pool string
	Entries    []string // names of the entries that limit it, the most general first
	Priority   int      // 1 is the first
	Order      int
	Queued     time.Time
	NotBefore  time.Time
	After      []string // keys of tasks that must have succeeded
	Unique     string   // only one task with it is held at a time; empty is none

	// What is granted, for whoever starts it: not looked at here.
	Enqueue, Start, Version uint64
}

// Limits are what an entry allows. Zero is no limit.
type Limits struct {
	Held     int // tasks that have a slot
	Rate     int // grants in each interval, which begins with its first grant
	Interval time.Duration
	Paused   bool
	Away     bool   // nobody would take what is started
	Why      string // it is Away, for people; empty is that no worker asks for tasks. Of one that is Paused by whom, and why, as Rights have it
}

// Rights of a repository.
type Rights struct {
	Held   int // tasks that have a slot; at least 1
	Weight int // at least 1
	Paused bool
	Why    string // for people, behind "is paused"
}

// Scheduler is the queue. Use [New].
type Scheduler struct {
	succeeded func(key string) bool
	aging     time.Duration
	items     map[string]*item
	repos     map[string]*repo
	turns     turns // repositories that could start something, but for entries
	entries   map[string]*entry
	future    heapOf[*item]
	waiters   map[string][]*item // by the key of the task, or by "unique " and the unique key
	uniques   map[string]*item   // who holds a unique key
	pass      float64            // of the last turn
	turn      uint64
	held      int
	top       *entry    // limits every task; nil when none does
	mixed     bool      // tasks have different first entries
	retry     time.Time // when a rate allows something again; zero is never
}

type place int8

const (
	inNone place = iota
	inFuture
	inWaiters
	inReady
	inHeld
)

// item is a task and where it is.
type item struct {
	Task
	where   place
	index   int    // in the heap, or the list of waiters, that it is in
	waits   string // in waiters
	class   *class
	urgency int64 // the lower the sooner
}

// New is an empty scheduler. succeeded says whether a task has succeeded; a task that nobody knows has not.
func New(aging time.Duration, succeeded func(key string) bool) *Scheduler {
	s := &Scheduler{
		succeeded: succeeded, aging: max(aging, time.Second),
		items: map[string]*item{}, repos: map[string]*repo{}, entries: map[string]*entry{}, waiters: map[string][]*item{}, uniques: map[string]*item{},
	}
	s.future = heapOf[*item]{less: func(a, b *item) bool { return a.NotBefore.Before(b.NotBefore) }, at: func(i *item, n int) { i.index = n }}
	return s
}

// SetAging changes after which time a task counts as one of the next priority.
func (s *Scheduler) SetAging(aging time.Duration) {
	if aging = max(aging, time.Second); aging == s.aging {
		return
	}
	s.aging = aging
	for _, it := range s.items {
		it.urgency = s.urgencyOf(&it.Task)
	}
	for _, r := range s.repos {
		for _, c := range r.classes {
			heap.Init(&c.ready)
		}
	}
}

// urgencyOf is when it was queued, to the second, with one aging interval for each priority.
func (s *Scheduler) urgencyOf(t *Task) int64 {
	return t.Queued.Unix() + int64(float64(t.Priority)*s.aging.Seconds())
}

// Ready is how many tasks wait for nothing but limits, among those that an entry limits.
func (s *Scheduler) Ready(name string) int {
	if e := s.entries[name]; e != nil {
		return e.ready
	}
	return 0
}

// SetRepository changes the rights of a repository; one that was never set has a limit and a weight of 1.
func (s *Scheduler) SetRepository(name string, r Rights) {
	repo := s.repo(name)
	repo.Rights = Rights{Held: max(r.Held, 1), Weight: max(r.Weight, 1), Paused: r.Paused, Why: r.Why}
	s.line(repo)
}

// Wait puts a task among those that wait, in place of what was known of it. One that is held stays held.
func (s *Scheduler) Wait(t Task, now time.Time) {
	if it := s.items[t.Key]; it != nil {
		if it.where == inHeld {
			return
		}
		s.remove(it)
	}
	it := &item{Task: t, urgency: s.urgencyOf(&t)}
	s.items[t.Key] = it
	s.put(it, now)
}

// Drop forgets a task that waits; of one that is held it does nothing.
func (s *Scheduler) Drop(key string) {
	if it := s.items[key]; it != nil && it.where != inHeld {
		s.remove(it)
		delete(s.items, key)
	}
}

// Hold counts a task as one that has a slot, whatever the limits are: it was granted before.
func (s *Scheduler) Hold(t Task) {
	if it := s.items[t.Key]; it != nil {
		if it.where == inHeld {
			return
		}
		s.remove(it)
	}
	it := &item{Task: t, urgency: s.urgencyOf(&t)}
	s.items[t.Key] = it
	s.hold(it)
}

// Held is the task of a slot.
func (s *Scheduler) Held(key string) (Task, bool) {
	if it := s.items[key]; it != nil && it.where == inHeld {
		return it.Task, true
	}
	return Task{}, false
}

// Release gives the slot of a task back, and forgets it. Nothing is counted for it any more.
func (s *Scheduler) Release(key string, now time.Time) {
	it := s.items[key]
	if it == nil || it.where != inHeld {
		return
	}
	delete(s.items, key)
	r := it.class.repo
	s.held--
	r.held--
	for _, e := range it.class.entries {
		e.held--
	}
	it.where = inNone
	if it.Unique != "" && s.uniques[it.Unique] == it {
		delete(s.uniques, it.Unique)
		s.wake("unique "+it.Unique, now)
	}
	s.line(r)
	s.tidy(r)
}

// Waiting is how many tasks wait.
func (s *Scheduler) Waiting() int { return len(s.items) - s.held }

// Succeeded tells that a task has succeeded, for those that run after it.
func (s *Scheduler) Succeeded(key string, now time.Time) { s.wake(key, now) }

func (s *Scheduler) wake(what string, now time.Time) {
	waiting := s.waiters[what]
	if len(waiting) == 0 {
		return
	}
	delete(s.waiters, what)
	for _, it := range waiting {
		it.where = inNone
		s.put(it, now)
	}
}

// put finds the place of a task that waits.
func (s *Scheduler) put(it *item, now time.Time) {
	if it.NotBefore.After(now) {
		it.where = inFuture
		heap.Push(&s.future, it)
		return
	}
	if what := s.obstacle(it); what != "" {
		it.where, it.waits, it.index = inWaiters, what, len(s.waiters[what])
		s.waiters[what] = append(s.waiters[what], it)
		return
	}
	it.where = inReady
	c := s.class(&it.Task)
	it.class = c
	heap.Push(&c.ready, it)
	c.repo.ready++
	c.count(1)
	s.line(c.repo)
}

// obstacle is another task that has to do something first.
func (s *Scheduler) obstacle(it *item) string {
	for _, key := range it.After {
		if !s.succeeded(key) {
			return key
		}
	}
	if it.Unique != "" && s.uniques[it.Unique] != nil {
		return "unique " + it.Unique
	}
	return ""
}

// remove takes a task that waits out of its place.
func (s *Scheduler) remove(it *item) {
	switch it.where {
	case inFuture:
		heap.Remove(&s.future, it.index)
	case inWaiters:
		list := s.waiters[it.waits]
		last := len(list) - 1
		list[it.index], list[last].index = list[last], it.index
		list[last] = nil
		list = list[:last]
		if s.waiters[it.waits] = list; len(list) == 0 {
			delete(s.waiters, it.waits)
		}
	case inReady:
		heap.Remove(&it.class.ready, it.index)
		it.class.repo.ready--
		it.class.count(-1)
		s.line(it.class.repo)
		s.tidy(it.class.repo)
	}
	it.where = inNone
}

func (s *Scheduler) hold(it *item) {
	c := s.class(&it.Task)
	it.where, it.class = inHeld, c
	s.held++
	c.repo.held++
	for _, e := range c.entries {
		e.held++
	}
	if it.Unique != "" && s.uniques[it.Unique] == nil {
		s.uniques[it.Unique] = it
	}
	s.line(c.repo)
}

// Might puts what has become due among those that wait, and reports whether Next may grant something. Where it says no, Next grants nothing now.
func (s *Scheduler) Might(now time.Time) bool {
	for s.future.Len() > 0 && !s.future.list[0].NotBefore.After(now) {
		it := heap.Pop(&s.future).(*item)
		it.where = inNone
		s.put(it, now)
	}
	s.retry = time.Time{}
	return s.turns.Len() > 0 && (s.top == nil || s.free(s.top, now))
}

// Next grants up to most tasks. They are held from then on.
func (s *Scheduler) Next(now time.Time, most int) []Task {
	if !s.Might(now) { // nobody could start anything
		return nil
	}
	var granted []Task
	var aside []*repo // what entries do not let start anything now
	for len(granted) < most && s.turns.Len() > 0 {
		if s.top != nil && !s.free(s.top, now) { // nobody could start anything
			break
		}
		r := s.turns.list[0]
		it := s.pick(r, now)
		if it == nil {
			if s.turns.Len() > 0 && s.turns.list[0] == r {
				heap.Pop(&s.turns)
				aside = append(aside, r)
			}
			continue
		}
		s.grant(r, it, now)
		granted = append(granted, it.Task)
	}
	for _, r := range aside {
		if r.turn < 0 {
			heap.Push(&s.turns, r)
		}
		s.line(r)
	}
	return granted
}

// grant takes a task out of its heap and holds it.
func (s *Scheduler) grant(r *repo, it *item, now time.Time) {
	for _, e := range it.class.entries {
		e.took(now)
	}
	heap.Remove(&it.class.ready, it.index)
	r.ready--
	it.class.count(-1)
	s.pass = max(s.pass, r.pass)
	r.pass += 1 / float64(r.Weight)
	s.turn++
	r.seq = s.turn
	s.hold(it)
	if r.turn >= 0 {
		heap.Fix(&s.turns, r.turn)
	}
}

// pick is the most urgent task of a repository that all entries let start, after those were put elsewhere that have to wait for another one again.
func (s *Scheduler) pick(r *repo, now time.Time) *item {
	for {
		var best *item
		for _, c := range r.classes {
			if c.ready.Len() == 0 || best != nil && !c.ready.less(c.ready.list[0], best) || !s.allows(c, now) {
				continue
			}
			best = c.ready.list[0]
		}
		if best == nil || s.obstacle(best) == "" {
			return best
		}
		s.remove(best) // what it runs after was reset, or another one has its unique key by now
		s.put(best, now)
	}
}

// allows reports whether the entries of a class let a task start now.
func (s *Scheduler) allows(c *class, now time.Time) bool {
	for _, e := range c.entries {
		if !s.free(e, now) {
			return false
		}
	}
	return true
}

func (s *Scheduler) free(e *entry, now time.Time) bool {
	free, again := e.allows(now)
	if !again.IsZero() && (s.retry.IsZero() || again.Before(s.retry)) {
		s.retry = again
	}
	return free
}

// Due is when Next may grant something that it does not grant now, if nothing else happens: when the time of a task comes, or a rate allows more. The zero time is never.
func (s *Scheduler) Due() time.Time {
	due := s.retry
	if s.future.Len() > 0 {
		if at := s.future.list[0].NotBefore; due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}
