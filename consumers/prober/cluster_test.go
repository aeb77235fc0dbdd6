package prober

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/machines/instance"
)

// shares are given and taken by the test.
type shares struct {
	mu      sync.Mutex
	set     cluster.Set
	claim   uint64
	changed chan struct{}
}

func (s *shares) Owned() (cluster.Set, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.set, s.changed
}

func (s *shares) Claim(p int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.set.Has(p) {
		return 0
	}
	return s.claim + 1
}

func (s *shares) give(set cluster.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set = set
	s.claim++
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

type nodes []string

func (n nodes) Nodes() []string { return n }

// Two nodes, of which one owns everything at a time: whoever takes over listens for a whole TTL before it says anything,
// and whoever has lost what it had says and probes nothing any more.
func TestTakeover(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := &shares{set: cluster.All}, &shares{}
	checkA, checkB := &script{}, &script{}
	pa, pb := w.prober(checkA), w.prober(checkB)
	pa.Shares, pb.Shares, pb.Node = a, b, "node-b"
	w.start(pa)
	w.start(pb)

	beats, probes := "default.moved.ttl", "default.moved.tcp"
	w.register(t, beats, instance.RegisterBody{Check: ttl("2s", "500ms")})
	w.register(t, probes, instance.RegisterBody{Check: quick})
	w.becomes(t, beats, instance.Unknown, patience)
	stop := w.beating(t, 100*time.Millisecond, "", beats)
	w.becomes(t, beats, instance.Healthy, patience)
	w.becomes(t, probes, instance.Healthy, patience)
	require.Zero(t, checkB.count(probes))

	stop()
	last := time.Now()
	require.Never(t, func() bool { return time.Since(last) > 1500*time.Millisecond }, 1400*time.Millisecond, 100*time.Millisecond)
	a.give(0)
	b.give(cluster.All)
	taken := time.Now()
	w.becomes(t, beats, instance.Suspect, patience)
	require.Greater(t, time.Since(taken), 1900*time.Millisecond, "one whole TTL from the takeover")
	item, _ := w.instances.Get(beats)
	require.Equal(t, "node-b", w.data(beats).Suspicion.By)
	w.becomes(t, beats, instance.Unhealthy, patience)
	require.NotZero(t, item.Revision)

	n := checkA.count(probes)
	require.Eventually(t, func() bool { return checkB.count(probes) > 3 }, patience, 10*time.Millisecond)
	require.LessOrEqual(t, checkA.count(probes), n+1)
	checkA.set(probes, refused) // nobody asks it any more
	require.Never(t, func() bool { return w.state(probes) != instance.Healthy }, time.Second, 50*time.Millisecond)
}

// Three nodes look, two must agree.
func TestObservers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	names := nodes{"node-a", "node-b", "node-c"}
	checks := map[string]*script{}
	for i, name := range names {
		checks[name] = &script{}
		p := w.prober(checks[name])
		p.Node, p.Peers, p.Shares = name, names, &shares{set: map[bool]cluster.Set{true: cluster.All}[i == 0]}
		w.start(p)
	}
	key := "default.seen.a"
	c := quick
	c.Observers, c.Agree = 3, 2
	w.register(t, key, instance.RegisterBody{Check: c, Policy: instance.Policy{NoFlap: true, SuspectMin: "20s"}})
	w.becomes(t, key, instance.Healthy, patience)
	for _, name := range names {
		require.Eventually(t, func() bool { return checks[name].count(key) > 2 }, patience, 10*time.Millisecond, name)
	}

	checks["node-b"].set(key, refused)
	require.Eventually(t, func() bool { return len(w.data(key).Failing) == 1 }, patience, 5*time.Millisecond)
	require.Equal(t, []string{"node-b"}, w.data(key).Failing)
	w.becomes(t, key, instance.Healthy, patience)
	n := len(w.events(t, key))
	require.Never(t, func() bool { return w.state(key) != instance.Healthy }, 1500*time.Millisecond, 20*time.Millisecond, "one of three does not decide, and the others do not take turns with it")
	require.Len(t, w.events(t, key), n)

	checks["node-c"].set(key, refused)
	w.becomes(t, key, instance.Unhealthy, patience)
	require.Subset(t, []string{"node-b", "node-c"}, w.data(key).Failing)

	checks["node-b"].set(key, instance.Result{OK: true})
	w.becomes(t, key, instance.Healthy, patience)
	checks["node-a"].set(key, refused)
	w.becomes(t, key, instance.Unhealthy, patience)
	require.NotContains(t, w.data(key).Failing, "node-b")
}

// A check may ask for more observers than there are nodes: those that are there decide.
func TestObserversThatAreNotThere(t *testing.T) {
	t.Parallel()
	w := setup(t)
	check := &script{}
	p := w.prober(check)
	p.Node, p.Peers = "node-a", nodes{"node-a"}
	w.start(p)
	key := "default.lonely.a"
	c := quick
	c.Observers = 3
	w.register(t, key, instance.RegisterBody{Check: c, Policy: instance.Policy{NoFlap: true, SuspectMin: "20s"}})
	w.becomes(t, key, instance.Healthy, patience)
	check.set(key, refused)
	w.becomes(t, key, instance.Unhealthy, patience)
	check.set(key, instance.Result{OK: true})
	w.becomes(t, key, instance.Healthy, patience)
}

// The nodes that observe are as many as asked for, the same from every point of view, and spread.
func TestRank(t *testing.T) {
	t.Parallel()
	names, took := nodes{"a", "b", "c", "d", "e"}, map[string]int{}
	rec := &instance.Record{Data: instance.Known{Terms: &instance.Terms{Check: instance.Check{Type: instance.CheckTCP, Observers: 2}}}}
	for _, key := range keys("web", 1000) {
		n := 0
		for _, name := range names {
			l := &loop{Prober: &Prober{Node: name}, nodes: names}
			if l.observes(key, rec) {
				n++
				took[name]++
			}
		}
		require.Equal(t, 2, n)
	}
	for _, name := range names {
		require.InDelta(t, 400, took[name], 80, name)
	}
	l := &loop{Prober: &Prober{Node: "a"}, nodes: nodes{"a"}}
	require.False(t, l.observes("default.web.a", rec), "nobody else is there")
}
