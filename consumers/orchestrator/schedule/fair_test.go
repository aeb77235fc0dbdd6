package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A hundred repositories that never run dry, some with far more than others, tasks of all lengths and priorities, for an hour of a simulated clock: in each window that has many starts for each,
// all get the same within a tenth.
func TestAHundredRepositoriesAreTreatedAlikeAllTheTime(t *testing.T) {
	t.Parallel()
	const repos, slots, window = 100, 40, 100 * 60
	random := rand.New(rand.NewPCG(7, 8))
	s := New(time.Minute, never)
	s.SetEntry("cluster", Limits{Held: slots})
	n := 0
	add := func(r int, now time.Time) {
		n++
		s.Wait(task(fmt.Sprintf("ns.r%03d", r), fmt.Sprint("t", n), 1+random.IntN(9), now), now)
	}
	for r := range repos {
		s.SetRepository(fmt.Sprintf("ns.r%03d", r), Rights{Held: 1 + r%4})
		for range 20 * (1 + r%7) {
			add(r, noon)
		}
	}
	ends := map[time.Time][]string{}
	counts := map[string]int{}
	starts := 0
	for now := noon; now.Before(noon.Add(time.Hour)); now = now.Add(time.Second) {
		for _, key := range ends[now] {
			s.Release(key, now)
		}
		delete(ends, now)
		for _, g := range s.Next(now, slots) {
			var r int
			_, err := fmt.Sscanf(g.Repository, "ns.r%03d", &r)
			require.NoError(t, err)
			add(r, now)
			end := now.Add(time.Duration(1+random.IntN(6)) * time.Second)
			ends[end] = append(ends[end], g.Key)
			counts[g.Repository]++
			starts++
		}
		if starts >= window {
			require.Len(t, counts, repos)
			for repo, got := range counts {
				require.InDelta(t, float64(starts)/repos, got, float64(starts)/repos/10, repo)
			}
			counts, starts = map[string]int{}, 0
		}
	}
}

// One task of priority 9 waits in a repository into which urgent ones come faster than they are done, beside others that are as busy: it starts when those are done that were queued
// in the eight intervals after it, however many come later.
func TestPriorityNineIsNeverStarved(t *testing.T) {
	t.Parallel()
	s := New(time.Minute, never)
	s.SetEntry("cluster", Limits{Held: 4})
	old := task("ns.r0", "old", 9, noon)
	s.Wait(old, noon)
	started := map[string]time.Time{}
	var running []string
	n, ahead := 0, 0
	for now := noon; started[old.Key].IsZero(); now = now.Add(time.Second) {
		require.True(t, now.Before(noon.Add(2*time.Hour)), "it never started: %s", s.Explain(old.Key, now))
		for r := range 4 { // two a second in each of four repositories, of which one a second is done
			for range 2 {
				n++
				s.Wait(task(fmt.Sprint("ns.r", r), fmt.Sprint("t", n), 1, now), now)
				if r == 0 && now.Before(noon.Add(8*time.Minute)) {
					ahead++
				}
			}
		}
		for _, key := range running {
			s.Release(key, now)
		}
		running = nil
		for _, g := range s.Next(now, 4) {
			started[g.Key] = now
			running = append(running, g.Key)
		}
	}
	before := 0
	for key := range started {
		if key[:5] == "ns.r0" && key != old.Key {
			before++
		}
	}
	require.LessOrEqual(t, before, ahead+1, "those of eight minutes, and of the second after")
	require.Greater(t, before, ahead/2)
}

func TestWhatTasksWaitFor(t *testing.T) {
	t.Parallel()
	s := New(time.Minute, never)
	s.SetEntry("cluster", Limits{Held: 2})
	s.SetEntry("type-off", Limits{Paused: true})
	s.SetEntry("type-slow", Limits{Rate: 1, Interval: time.Hour})
	add := func(repo, id string, set func(*Task)) {
		x := task(repo, id, 5, noon.Add(-time.Minute))
		if set != nil {
			set(&x)
		}
		s.Wait(x, noon)
	}
	typed := func(typ string) func(*Task) {
		return func(x *Task) { x.Entries = []string{"cluster", typ} }
	}
	s.SetRepository("ns.slow", Rights{Held: 9})
	add("ns.slow", "s1", typed("type-slow"))
	require.Len(t, s.Next(noon, 9), 1)
	add("ns.slow", "s2", typed("type-slow"))
	add("ns.off", "o1", typed("type-off"))
	add("ns.time", "t1", func(x *Task) { x.NotBefore = noon.Add(time.Hour) })
	add("ns.dep", "d1", func(x *Task) { x.After = []string{"ns.dep.none"} })
	add("ns.u", "u1", func(x *Task) { x.Unique = "u" })
	require.Len(t, s.Next(noon, 1), 1)
	add("ns.v", "u2", func(x *Task) { x.Unique = "u" })
	add("ns.u", "u3", nil)
	add("ns.full", "f1", nil)
	st := s.Stand(noon)
	require.Equal(t, Stand{Waiting: map[string]int{ForTime: 1, ForDependency: 1, ForUnique: 1, ForPause: 1, ForLimit: 3}, Held: 2, Oldest: time.Minute}, st)
	s.SetEntry("cluster", Limits{})
	require.Equal(t, map[string]int{ForTime: 1, ForDependency: 1, ForUnique: 1, ForPause: 1, ForLimit: 1, ForRate: 1, ForTurn: 1}, s.Stand(noon).Waiting)
	for key, why := range map[string]string{
		"ns.time.t1": "it is not before", "ns.dep.d1": "it runs after ns.dep.none", "ns.v.u2": "another task has its unique key", "ns.off.o1": "queue type-off is paused",
		"ns.slow.s2": "queue type-slow has started 1", "ns.u.u3": "its repository runs 1 of 1", "ns.full.f1": "it is its turn soon", "ns.u.u1": "it has a slot",
	} {
		require.Contains(t, s.Explain(key, noon), why, key)
	}
}

// What runs after one task may be very much, and all of it ends with that: each costs the same.
func BenchmarkDropOfThoseThatWait(b *testing.B) {
	for b.Loop() {
		s := New(time.Minute, never)
		for i := range 100_000 {
			t := task("ns.r", fmt.Sprint("t", i), 5, noon)
			t.After = []string{"ns.r.clone"}
			s.Wait(t, noon)
		}
		for i := range 100_000 {
			s.Drop(fmt.Sprint("ns.r.t", 99_999-i))
		}
		if s.Waiting() > 0 {
			b.Fatal("some are left")
		}
	}
}

// Nor do those whose workers were away, or whose queue was paused, while others started much.
func TestThoseThatWaitedForAnEntryClaimNothing(t *testing.T) {
	t.Parallel()
	for name, closed := range map[string]Limits{"away": {Away: true}, "paused": {Paused: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(time.Minute, never)
			for _, of := range []string{"ns.busy", "ns.kept"} {
				s.SetRepository(of, Rights{Held: 100})
				for i := range 1000 {
					it := task(of, fmt.Sprint("t", i), 5, noon)
					it.Entries = []string{of}
					s.Wait(it, noon)
				}
			}
			s.SetEntry("ns.kept", closed)
			run(s, 4, 500, func(Task) int { return 1 })
			s.SetEntry("ns.kept", Limits{})
			counts := map[string]int{}
			for _, g := range run(s, 4, 100, func(Task) int { return 1 }) {
				counts[g.Repository]++
			}
			require.InDelta(t, 50, counts["ns.kept"], 5)
		})
	}
}
