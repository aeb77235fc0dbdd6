package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 26, 12, 0, 0, 0, time.UTC)

func never(string) bool { return false }

// world drives a scheduler and keeps its own books, in the most naive way.
type world struct {
	t         *rapid.T
	s         *Scheduler
	now       time.Time
	waiting   map[string]Task
	held      map[string]Task
	succeeded map[string]bool
	limits    map[string]Limits
	rights    map[string]Rights
	starts    map[string][]time.Time // by entry
}

func TestNoSequenceExceedsALimitOrForgetsATask(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: noon, waiting: map[string]Task{}, held: map[string]Task{}, succeeded: map[string]bool{}, limits: map[string]Limits{}, rights: map[string]Rights{}, starts: map[string][]time.Time{}}
		w.s = New(time.Minute, func(key string) bool { return w.succeeded[key] })
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			w.step()
			w.consistent()
		}
		w.drain()
	})
}

func (w *world) key() string { return fmt.Sprintf("ns.r%d.t%d", w.pick(4), w.pick(6)) }

func (w *world) pick(n int) int { return rapid.IntRange(0, n-1).Draw(w.t, "n") }

func (w *world) step() {
	switch w.pick(9) {
	case 0, 1, 2:
		w.wait()
	case 3:
		key := w.key()
		w.s.Drop(key)
		delete(w.waiting, key)
	case 4:
		name := []string{"cluster", "all", "type-a", "type-b"}[w.pick(4)]
		l := Limits{Held: w.pick(4), Paused: w.pick(6) == 0}
		if w.pick(3) == 0 {
			l.Rate, l.Interval = 1+w.pick(3), time.Duration(1+w.pick(5))*time.Second
			w.starts[name] = nil // a new rate begins at once, but its window goes on
			w.s.SetWindow(name, Window{})
		}
		w.limits[name] = l
		w.s.SetEntry(name, l)
	case 5:
		name := fmt.Sprintf("ns.r%d", w.pick(4))
		w.rights[name] = Rights{Held: 1 + w.pick(3), Weight: 1 + w.pick(3), Paused: w.pick(6) == 0}
		w.s.SetRepository(name, w.rights[name])
	case 6:
		for key := range w.held {
			if w.pick(2) == 0 {
				w.succeeded[key] = w.pick(3) > 0
				delete(w.held, key)
				w.s.Release(key, w.now)
				if w.succeeded[key] {
					w.s.Succeeded(key, w.now)
				}
			}
		}
	case 7:
		w.now = w.now.Add(time.Duration(w.pick(4000)) * time.Millisecond)
	case 8:
		w.next()
	}
}

func (w *world) wait() {
	typ := []string{"a", "b"}[w.pick(2)]
	t := Task{
		Key: w.key(), Type: typ, Entries: []string{"cluster", "all", "type-" + typ}, Priority: 1 + w.pick(9), Order: w.pick(3),
		Queued: w.now.Add(-time.Duration(w.pick(600)) * time.Second),
	}
	t.Repository = t.Key[:5]
	if w.pick(4) == 0 {
		t.NotBefore = w.now.Add(time.Duration(w.pick(3000)) * time.Millisecond)
	}
	if w.pick(4) == 0 {
		t.After = []string{w.key()}
	}
	if w.pick(4) == 0 {
		t.Unique = fmt.Sprint("u", w.pick(2))
	}
	w.s.Wait(t, w.now)
	if _, held := w.held[t.Key]; !held {
		w.waiting[t.Key] = t
	}
}

func (w *world) next() {
	for _, g := range w.s.Next(w.now, 1+w.pick(5)) {
		t, ok := w.waiting[g.Key]
		require.True(w.t, ok, "%s was granted and does not wait", g.Key)
		require.Equal(w.t, t, g)
		w.allowed(t)
		delete(w.waiting, t.Key)
		w.held[t.Key] = t
		for _, e := range t.Entries {
			w.starts[e] = append(w.starts[e], w.now)
		}
	}
}

// allowed: nothing is against a grant, by the books.
func (w *world) allowed(t Task) {
	require.False(w.t, t.NotBefore.After(w.now))
	for _, key := range t.After {
		require.True(w.t, w.succeeded[key])
	}
	inRepo := 0
	for _, h := range w.held {
		if h.Repository == t.Repository {
			inRepo++
		}
		require.True(w.t, t.Unique == "" || h.Unique != t.Unique, "two have the key %s", t.Unique)
	}
	r := w.rights[t.Repository]
	require.False(w.t, r.Paused)
	require.Less(w.t, inRepo, max(r.Held, 1))
	for _, e := range t.Entries {
		l, held := w.limits[e], 0
		for _, h := range w.held {
			if slices.Contains(h.Entries, e) {
				held++
			}
		}
		require.False(w.t, l.Paused)
		require.True(w.t, l.Held == 0 || held < l.Held, "%s holds %d of %d", e, held, l.Held)
		if l.Rate > 0 { // in windows that begin with a grant, as many as the rate
			window, taken := time.Time{}, 0
			for _, at := range append(slices.Clone(w.starts[e]), w.now) {
				if !window.Add(l.Interval).After(at) {
					window, taken = at, 0
				}
				taken++
				require.LessOrEqual(w.t, taken, l.Rate, "%s: rate", e)
			}
		}
	}
}

// consistent: every task is in one place, and counted once.
func (w *world) consistent() {
	require.Len(w.t, w.s.items, len(w.waiting)+len(w.held))
	ready := map[*repo]int{}
	for key, it := range w.s.items {
		_, held := w.held[key]
		require.Equal(w.t, held, it.where == inHeld, key)
		switch it.where {
		case inFuture:
			require.Same(w.t, it, w.s.future.list[it.index])
		case inReady:
			require.Same(w.t, it, it.class.ready.list[it.index])
			ready[it.class.repo]++
		case inWaiters:
			require.Same(w.t, it, w.s.waiters[it.waits][it.index])
		case inNone:
			require.Fail(w.t, "a task is nowhere", key)
		}
		if it.where != inHeld {
			require.NotEmpty(w.t, w.s.Explain(key, w.now))
		}
	}
	for _, r := range w.s.repos {
		require.Equal(w.t, ready[r], r.ready, r.name)
		require.Equal(w.t, r.ready > 0 && r.held < r.Rights.Held && !r.Paused, r.turn >= 0, "%s takes turns", r.name)
	}
}

// drain: when nothing is against it any more, everything that can start does, however it was treated before.
func (w *world) drain() {
	for name := range w.limits {
		w.s.SetEntry(name, Limits{})
	}
	for name := range w.rights {
		w.s.SetRepository(name, Rights{})
	}
	w.limits, w.rights = map[string]Limits{}, map[string]Rights{}
	w.now = w.now.Add(time.Hour)
	for range 100 {
		for key := range w.held {
			delete(w.held, key)
			w.s.Release(key, w.now)
			w.succeeded[key] = true
			w.s.Succeeded(key, w.now)
		}
		w.next()
		if len(w.held) == 0 {
			break
		}
	}
	for key, t := range w.waiting { // those that run after one that is not there, or in a circle
		require.NotEmpty(w.t, t.After, "%s never started: %s", key, w.s.Explain(key, w.now))
	}
}

func task(repo, id string, priority int, queued time.Time) Task {
	return Task{Key: repo + "." + id, Repository: repo, Entries: []string{"cluster"}, Priority: priority, Queued: queued}
}

// run starts and ends tasks with a number of slots, and returns the order of the starts.
func run(s *Scheduler, slots, starts int, length func(Task) int) []Task {
	s.SetEntry("cluster", Limits{Held: slots})
	type running struct {
		Task
		until int
	}
	var order []Task
	var under []running
	for tick := 0; len(order) < starts && tick < 100*starts; tick++ {
		now := noon.Add(time.Duration(tick) * time.Millisecond)
		under = slices.DeleteFunc(under, func(r running) bool {
			if r.until > tick {
				return false
			}
			s.Release(r.Key, now)
			return true
		})
		for _, t := range s.Next(now, slots) {
			order = append(order, t)
			under = append(under, running{t, tick + length(t)})
		}
	}
	for _, r := range under {
		s.Release(r.Key, noon)
	}
	return order
}

func TestRepositoriesGetEqualShares(t *testing.T) {
	t.Parallel()
	s := New(time.Minute, never)
	const repos, each = 100, 200
	for r := range repos {
		for i := range each * (1 + r%5) { // some want much more than others
			s.Wait(task(fmt.Sprintf("ns.r%03d", r), fmt.Sprint("t", i), 1+(r+i)%9, noon.Add(time.Duration(i)*time.Second)), noon.Add(time.Hour))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	counts := map[string]int{}
	const starts = repos * each / 2
	for _, g := range run(s, 16, starts, func(Task) int { return 1 + random.IntN(20) }) {
		counts[g.Repository]++
	}
	require.Len(t, counts, repos)
	for repo, n := range counts {
		require.InDelta(t, starts/repos, n, starts/repos/10.0, repo)
	}
}

func TestWeightsAreShares(t *testing.T) {
	t.Parallel()
	s := New(time.Minute, never)
	weights := map[string]int{"ns.a": 1, "ns.b": 2, "ns.c": 5}
	for repo, weight := range weights {
		s.SetRepository(repo, Rights{Held: 100, Weight: weight})
		for i := range 2000 {
			s.Wait(task(repo, fmt.Sprint("t", i), 5, noon), noon)
		}
	}
	counts := map[string]int{}
	for _, g := range run(s, 8, 1600, func(Task) int { return 3 }) {
		counts[g.Repository]++
	}
	for repo, weight := range weights {
		require.InDelta(t, 200*weight, counts[repo], 20, repo)
	}
}

func TestThoseThatWereAwayClaimNothing(t *testing.T) {
	t.Parallel()
	s := New(time.Minute, never)
	for i := range 1000 {
		s.Wait(task("ns.busy", fmt.Sprint("t", i), 5, noon), noon)
	}
	s.SetRepository("ns.busy", Rights{Held: 100})
	run(s, 4, 500, func(Task) int { return 1 })
	s.SetRepository("ns.late", Rights{Held: 100})
	for i := range 1000 {
		s.Wait(task("ns.late", fmt.Sprint("t", i), 5, noon), noon)
	}
	counts := map[string]int{}
	for _, g := range run(s, 4, 100, func(Task) int { return 1 }) {
		counts[g.Repository]++
	}
	require.InDelta(t, 50, counts["ns.late"], 5)
}

func TestWaitingRaisesThePriority(t *testing.T) {
	t.Parallel()
	s := New(time.Minute, never)
	s.Wait(task("ns.r", "old-nine", 9, noon), noon)
	for i := range 20 { // urgent ones keep coming, one each minute
		s.Wait(task("ns.r", fmt.Sprintf("new-%02d", i), 1, noon.Add(time.Duration(i)*time.Minute)), noon)
	}
	var place int
	for i, g := range run(s, 1, 21, func(Task) int { return 1 }) {
		if g.Key == "ns.r.old-nine" {
			place = i
		}
	}
	require.Equal(t, 8, place, "those that were queued within eight minutes go first, or at the same time by their age")
}

func TestTheOrderOfOneSecond(t *testing.T) {
	t.Parallel()
	s := New(time.Minute, never)
	for i, order := range []int{3, 1, 2} {
		x := task("ns.r", fmt.Sprint("o", order), 5, noon.Add(time.Duration(i)*time.Millisecond))
		x.Order = order
		s.Wait(x, noon)
	}
	var keys []string
	for _, g := range run(s, 1, 3, func(Task) int { return 1 }) {
		keys = append(keys, g.Key)
	}
	require.Equal(t, []string{"ns.r.o1", "ns.r.o2", "ns.r.o3"}, keys)
}

func TestARateSaysWhenItAllowsMore(t *testing.T) {
	t.Parallel()
	s := New(time.Minute, never)
	s.SetEntry("cluster", Limits{Rate: 2, Interval: time.Minute})
	s.SetRepository("ns.r", Rights{Held: 10})
	for i := range 5 {
		s.Wait(task("ns.r", fmt.Sprint("t", i), 5, noon), noon)
	}
	require.Len(t, s.Next(noon, 10), 2)
	require.Empty(t, s.Next(noon.Add(59*time.Second), 10))
	require.Equal(t, noon.Add(time.Minute), s.Due())
	other := New(time.Minute, never) // who takes over goes on with the window
	other.SetEntry("cluster", Limits{Rate: 2, Interval: time.Minute})
	other.SetRepository("ns.r", Rights{Held: 10})
	for name, w := range s.Windows(noon.Add(59 * time.Second)) {
		other.SetWindow(name, w)
	}
	other.Wait(task("ns.r", "t4", 5, noon), noon)
	require.Empty(t, other.Next(noon.Add(59*time.Second), 10))
	require.Len(t, s.Next(noon.Add(time.Minute), 10), 2)
}

func TestCycles(t *testing.T) {
	t.Parallel()
	after := func(key string) []string {
		return map[string][]string{"b": {"c"}, "c": {"a", "d"}, "d": {"e"}}[key]
	}
	require.Equal(t, []string{"a", "b", "c", "a"}, Cycle("a", []string{"b"}, after))
	require.Equal(t, []string{"a", "a"}, Cycle("a", []string{"a"}, after))
	require.Nil(t, Cycle("x", []string{"b", "c"}, after))
	require.Nil(t, Cycle("a", []string{"d"}, after))
}

// The cost of one job, with so many waiting in 100 repositories.
func BenchmarkAJob(b *testing.B) {
	for _, waiting := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			s := New(time.Minute, never)
			s.SetEntry("cluster", Limits{Held: 64})
			var n int
			add := func() {
				s.Wait(task(fmt.Sprint("ns.r", n%100), fmt.Sprint("t", n), 1+n%9, noon.Add(time.Duration(n)*time.Millisecond)), noon.Add(time.Hour))
				n++
			}
			for range waiting {
				add()
			}
			b.ReportAllocs()
			b.ResetTimer()
			var held []Task
			for range b.N {
				add()
				if len(held) == 0 {
					held = s.Next(noon.Add(time.Hour), 64)
				}
				s.Release(held[0].Key, noon)
				held = held[1:]
			}
		})
	}
}
