package schedule

// Where ready tasks wait: repo has them in one heap for each class, that is for each set of entries that limits them, and turns has the repositories that may start something. line keeps
// the latter right after every change of a repository. entry counts what is held, and the rate. schedule.go calls all of it.

import (
	"container/heap"
	"slices"
	"time"
)

// entry is what limits tasks across repositories.
type entry struct {
	Limits
	held   int
	ready  int       // tasks that wait for nothing but limits
	window time.Time // when the interval of the rate began
	taken  int       // grants in it
}

// allows reports whether one more may start, and, where only the rate is against it, when it may.
func (e *entry) allows(now time.Time) (free bool, again time.Time) {
	if e.Paused || e.Away || e.Limits.Held > 0 && e.held >= e.Limits.Held {
		return false, time.Time{}
	}
	if e.Rate > 0 && e.taken >= e.Rate {
		if end := e.window.Add(e.Interval); end.After(now) && !e.ahead(now) {
			return false, end
		}
	}
	return true, time.Time{}
}

// ahead reports whether the window was begun by a clock that was far ahead of now's: it is over then. Clocks of two nodes may differ by a little.
func (e *entry) ahead(now time.Time) bool { return e.window.After(now.Add(e.Interval)) }

func (e *entry) took(now time.Time) {
	if e.Rate <= 0 {
		return
	}
	if !e.window.Add(e.Interval).After(now) || e.ahead(now) {
		e.window, e.taken = now, 0
	}
	e.taken++
}

// class are the tasks of a repository that the same entries limit.
type class struct {
	repo    *repo
	names   []string
	entries []*entry
	ready   heapOf[*item]
}

// count keeps how many are ready.
func (c *class) count(n int) {
	for _, e := range c.entries {
		e.ready += n
	}
}

// repo is a repository that has tasks that wait or are held.
type repo struct {
	Rights
	name    string
	held    int
	ready   int
	classes []*class // few
	pass    float64
	seq     uint64 // of its last turn: of the same pass, who has waited longest
	turn    int    // in turns; -1 is not there
}

func (s *Scheduler) repo(name string) *repo {
	r := s.repos[name]
	if r == nil {
		r = &repo{Rights: Rights{Held: 1, Weight: 1}, name: name, turn: -1}
		s.repos[name] = r
	}
	return r
}

// ForgetRepository takes the rights of a repository away.
func (s *Scheduler) ForgetRepository(name string) {
	if r := s.repos[name]; r != nil {
		r.Rights = Rights{Held: 1, Weight: 1}
		s.line(r)
		if r.held == 0 && !r.waits() {
			delete(s.repos, name)
		}
	}
}

func (r *repo) waits() bool { return r.ready > 0 }

// tidy drops classes that have nothing: a repository may see many types.
func (s *Scheduler) tidy(r *repo) {
	if len(r.classes) > 8 && r.held == 0 && r.ready == 0 {
		r.classes = nil
	}
}

func (s *Scheduler) entry(name string) *entry {
	e := s.entries[name]
	if e == nil {
		e = &entry{}
		s.entries[name] = e
	}
	return e
}

// topped remembers the entry that limits all tasks, if there is one.
func (s *Scheduler) topped(c *class) {
	switch {
	case s.mixed:
	case len(c.entries) == 0 || s.top != nil && s.top != c.entries[0]:
		s.mixed, s.top = true, nil
	default:
		s.top = c.entries[0]
	}
}

func (s *Scheduler) class(t *Task) *class {
	r := s.repo(t.Repository)
	for _, c := range r.classes {
		if slices.Equal(c.names, t.Entries) {
			return c
		}
	}
	c := &class{repo: r, names: t.Entries}
	for _, e := range t.Entries {
		c.entries = append(c.entries, s.entry(e))
	}
	s.topped(c)
	c.ready = heapOf[*item]{less: before, at: func(i *item, n int) { i.index = n }}
	r.classes = append(r.classes, c)
	return c
}

// before is the order within a repository.
func before(a, b *item) bool {
	switch {
	case a.urgency != b.urgency:
		return a.urgency < b.urgency
	case a.Order != b.Order:
		return a.Order < b.Order
	case !a.Queued.Equal(b.Queued):
		return a.Queued.Before(b.Queued)
	}
	return a.Key < b.Key
}

// line puts a repository among those that take turns, or takes it out, as it may start something or not.
func (s *Scheduler) line(r *repo) {
	may := r.ready > 0 && r.held < r.Rights.Held && !r.Paused
	switch {
	case may && r.turn < 0:
		r.pass = max(r.pass, s.pass)
		heap.Push(&s.turns, r)
	case !may && r.turn >= 0:
		heap.Remove(&s.turns, r.turn)
	}
}

// SetEntry changes what an entry allows. One that was never set allows everything.
//
// Whoever waited for one that was closed has its turn as if it came now: what others have started meanwhile is no credit, or they would start nothing until it has caught up.
func (s *Scheduler) SetEntry(name string, l Limits) {
	e := s.entry(name)
	opens := (e.Paused || e.Away) && !l.Paused && !l.Away
	e.Limits = l
	if !opens {
		return
	}
	for _, r := range s.turns.list {
		if slices.ContainsFunc(r.classes, func(c *class) bool { return c.ready.Len() > 0 && slices.Contains(c.entries, e) }) {
			r.pass = max(r.pass, s.pass)
		}
	}
	heap.Init(&s.turns)
}

// turns are repositories in the order of their turns.
type turns struct{ list []*repo }

func (t *turns) Len() int { return len(t.list) }
func (t *turns) Less(i, j int) bool {
	a, b := t.list[i], t.list[j]
	if a.pass != b.pass {
		return a.pass < b.pass
	}
	if a.seq != b.seq {
		return a.seq < b.seq
	}
	return a.name < b.name
}

func (t *turns) Swap(i, j int) {
	t.list[i], t.list[j] = t.list[j], t.list[i]
	t.list[i].turn, t.list[j].turn = i, j
}

func (t *turns) Push(x any) {
	r := x.(*repo)
	r.turn = len(t.list)
	t.list = append(t.list, r)
}

func (t *turns) Pop() any {
	r := t.list[len(t.list)-1]
	t.list[len(t.list)-1] = nil
	t.list = t.list[:len(t.list)-1]
	r.turn = -1
	return r
}

// heapOf is a heap whose elements know where they are.
type heapOf[T any] struct {
	list []T
	less func(a, b T) bool
	at   func(T, int)
}

func (h *heapOf[T]) Len() int           { return len(h.list) }
func (h *heapOf[T]) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }
func (h *heapOf[T]) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.at(h.list[i], i)
	h.at(h.list[j], j)
}

func (h *heapOf[T]) Push(x any) {
	h.list = append(h.list, x.(T))
	h.at(x.(T), len(h.list)-1)
}

func (h *heapOf[T]) Pop() any {
	var none T
	last := len(h.list) - 1
	x := h.list[last]
	h.list[last] = none
	h.list = h.list[:last]
	return x
}

// Window is how far the rate of an entry is, so that whoever takes over goes on with it.
type Window struct {
	Began time.Time
	Taken int
}

// Windows are those of all entries with a rate that are not over: who takes over begins a new one then.
func (s *Scheduler) Windows(now time.Time) map[string]Window {
	var all map[string]Window
	for name, e := range s.entries {
		if e.Rate > 0 && e.taken > 0 && e.window.Add(e.Interval).After(now) {
			if all == nil {
				all = map[string]Window{}
			}
			all[name] = Window{e.window, e.taken}
		}
	}
	return all
}

// SetWindow goes on with the rate of an entry.
func (s *Scheduler) SetWindow(name string, w Window) {
	e := s.entry(name)
	e.window, e.taken = w.Began, w.Taken
}
