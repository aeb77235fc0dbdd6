package prober

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/prober/localhealth"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/streams"
)

// standings keeps what was told last.
type standings struct {
	noMeter
	mu   sync.Mutex
	last Status
	most int
}

func (s *standings) Status(v Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.most = v, max(s.most, v.HealthScore)
}

func (s *standings) worst() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// A process that was stopped finds on waking that everybody is silent, and says so of nobody.
func TestStandstill(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var ahead atomic.Int64
	start, told := time.Now(), &standings{}
	p := w.prober(&script{})
	p.Metrics, p.clock = told, func() time.Duration { return time.Since(start) + time.Duration(ahead.Load()) }
	w.start(p)
	// One of each service, so that it is not self-preservation that keeps them.
	var all []string
	for i := range 10 {
		key := fmt.Sprintf("default.still-%d.a", i)
		all = append(all, key)
		w.register(t, key, instance.RegisterBody{Check: ttl("10s", "1s")})
	}
	stop := w.beating(t, 500*time.Millisecond, "", all...)
	for _, key := range all {
		w.becomes(t, key, instance.Healthy, patience)
	}
	ahead.Store(int64(time.Hour))
	require.Eventually(t, func() bool { return told.worst() >= localhealth.Untrusted }, patience, 10*time.Millisecond)
	stop() // what was lost while it stood still: for a part of the TTL nothing is heard
	require.Never(t, func() bool {
		for _, key := range all {
			if w.state(key) != instance.Healthy {
				return true
			}
		}
		return false
	}, 2*time.Second, 20*time.Millisecond)
	w.beating(t, 500*time.Millisecond, "", all[1:]...)
	w.becomes(t, all[0], instance.Unhealthy, patience)
	for _, key := range all[1:] {
		require.Equal(t, instance.Healthy, w.state(key))
		require.NotContains(t, w.events(t, key), "suspected")
	}
}

// What was sent while the connection was away is lost.
func TestReconnect(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.start(w.prober(&script{}))
	key := "default.back.a"
	w.register(t, key, instance.RegisterBody{Check: ttl("2s", "500ms")})
	w.becomes(t, key, instance.Unknown, patience)
	w.beat(t, key, "")
	w.becomes(t, key, instance.Healthy, patience)
	require.Never(t, func() bool { return w.state(key) != instance.Healthy }, 1500*time.Millisecond, 50*time.Millisecond)
	require.NoError(t, w.NC.ForceReconnect())
	require.Eventually(t, w.NC.IsConnected, patience, time.Millisecond)
	back := time.Now()
	w.becomes(t, key, instance.Suspect, patience)
	require.Greater(t, time.Since(back), 1800*time.Millisecond)
}

// When every probe times out at once, it may be this node's network. Refusals come from somewhere.
func TestBlindness(t *testing.T) {
	t.Parallel()
	w, checker, told := setup(t), &script{}, &standings{}
	p := w.prober(checker)
	p.Metrics = told
	w.start(p)
	all := keys("blind", 8)
	for _, key := range all {
		w.register(t, key, instance.RegisterBody{Check: quick, Policy: instance.Policy{Fall: 8}})
	}
	for _, key := range all {
		w.becomes(t, key, instance.Healthy, patience)
	}
	for _, key := range all {
		checker.set(key, timedOut)
	}
	require.Eventually(t, func() bool { return told.worst() == localhealth.Max }, patience, 10*time.Millisecond)
	require.Never(t, func() bool { return w.instances.Counts("")[instance.Healthy] != len(all) }, 3*time.Second, 50*time.Millisecond)
	for _, key := range all[1:] {
		checker.set(key, instance.Result{OK: true})
	}
	w.becomes(t, all[0], instance.Unhealthy, patience)
	require.Equal(t, len(all)-1, w.instances.Counts("")[instance.Healthy])
}

// One instance that answers is no evidence for those that do not. What lasts is not believed either, where nobody else
// answers: zones are protected, however small they are, until half of the instances answer.
func TestBlindnessLasts(t *testing.T) {
	t.Parallel()
	w, checker := setup(t), &script{}
	p := w.prober(checker)
	p.blinds = 2 * time.Second
	w.start(p)
	var all []string
	for i := range 6 {
		all = append(all, fmt.Sprintf("default.dark-%d.a", i))
		w.register(t, all[i], instance.RegisterBody{Check: quick, Policy: instance.Policy{Fall: 8}})
	}
	alive := "default.alive.a"
	w.register(t, alive, instance.RegisterBody{Check: quick})
	for _, key := range append(all, alive) {
		w.becomes(t, key, instance.Healthy, patience)
	}
	for _, key := range all {
		checker.set(key, timedOut)
	}
	zone := func(i int) string {
		z, _ := w.preservations.Get(fmt.Sprintf("default.dark-%d.none", i))
		return z.State
	}
	for i := range all {
		require.Eventually(t, func() bool { return zone(i) == preservation.Protected }, patience, 10*time.Millisecond)
	}
	require.Never(t, func() bool { return !w.routable(all...) }, 2*time.Second, 20*time.Millisecond)
	for _, key := range all[:4] {
		checker.set(key, instance.Result{OK: true})
	}
	for i := range all[:4] {
		require.Eventually(t, func() bool { return zone(i) == preservation.Recovering }, patience, 10*time.Millisecond)
		w.becomes(t, all[i], instance.Healthy, patience)
	}
	require.Eventually(t, func() bool { return zone(5) == preservation.Recovering }, patience, 10*time.Millisecond, "five of seven answer: this one is lost by its own fault")
}

// What gives no answer is evidence against its own zone and namespace, and for others one vote: a tenant whose instances go
// dark and come back in turns neither delays what is found out about others, nor protects them.
func TestBlindnessIsOfWhatIsDark(t *testing.T) {
	t.Parallel()
	w, c := setup(t), &script{}
	p := w.prober(c)
	p.blinds = 2 * time.Second
	w.start(p)
	check := instance.Check{Type: instance.CheckTCP, Interval: "100ms", Timeout: "50ms"}
	var dark []string
	for i := range 12 {
		dark = append(dark, fmt.Sprintf("other.x-%d.i-%d", i/6*i, i)) // some of one service, some of services of their own
		w.register(t, dark[i], instance.RegisterBody{Check: check, Policy: instance.Policy{Fall: 8}})
	}
	dead, quiet := "default.shop.a", "default.batch.a"
	w.register(t, dead, instance.RegisterBody{Check: check, Policy: instance.Policy{Fall: 12}})
	w.register(t, quiet, instance.RegisterBody{Check: ttl("2s", "500ms")})
	stop := w.beating(t, 300*time.Millisecond, "", quiet)
	for _, key := range append(dark, dead, quiet) {
		w.becomes(t, key, instance.Healthy, patience)
	}
	turn := func(r instance.Result) {
		before := c.count(dark[0])
		c.setAll(r, dark...)
		require.Eventually(t, func() bool { return c.count(dark[0]) > before+3 }, patience, time.Millisecond)
	}
	turn(timedOut)
	require.Eventually(t, func() bool { return w.log.times("most probes fail at once") > 0 }, patience, time.Millisecond)
	c.set(dead, refused)
	stop()
	since := time.Now()
	require.Eventually(t, func() bool {
		if time.Since(since) > 500*time.Millisecond { // the end of their darkness forgets no failure of others either
			turn(instance.Result{OK: true})
			turn(timedOut)
		}
		return w.state(dead) == instance.Unhealthy && w.state(quiet) == instance.Unhealthy
	}, patience, 5*time.Millisecond)
	require.True(t, w.routable(dark...), "what is doubted is kept")
	require.Empty(t, w.zone("batch", preservation.NoZone))
}

// Of twenty instances one dies, and is gone; then all fall silent at once, and none is.
func TestPreservation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.start(w.prober(&script{}))
	all := keys("kept", 20)
	for _, key := range all {
		w.register(t, key, instance.RegisterBody{Check: ttl("2s", "1s"), Zone: "eu-west-1a"})
	}
	for _, key := range all {
		w.becomes(t, key, instance.Unknown, patience)
	}
	stop := w.beating(t, 300*time.Millisecond, "", all...)
	for _, key := range all {
		w.becomes(t, key, instance.Healthy, patience)
	}
	stop()
	stop = w.beating(t, 300*time.Millisecond, "", all[1:]...)
	w.becomes(t, all[0], instance.Unhealthy, patience)
	stop()
	kept := all[1:]
	zone := func() string { i, _ := w.preservations.Get("default.kept.eu-west-1a"); return i.State }
	require.Empty(t, zone())
	require.Eventually(t, func() bool { return zone() == preservation.Protected }, patience, 5*time.Millisecond)
	all19 := func(holds func(key string) bool) bool {
		for _, key := range kept {
			if !holds(key) {
				return false
			}
		}
		return true
	}
	require.Eventually(t, func() bool { return all19(func(k string) bool { return w.data(k).Protected }) }, patience, 10*time.Millisecond)
	routable := func(k string) bool { s := w.state(k); return s == instance.Healthy || s == instance.Suspect }
	require.Never(t, func() bool { return !all19(routable) }, 4*time.Second, 50*time.Millisecond)

	stop = w.beating(t, 300*time.Millisecond, "", kept...)
	require.Eventually(t, func() bool { return zone() == preservation.Recovering }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		return all19(func(k string) bool { return !w.data(k).Protected && w.state(k) == instance.Healthy })
	}, patience, 10*time.Millisecond)
	for _, key := range kept {
		require.NotContains(t, w.events(t, key), "unhealthy")
	}

	// Silent again, and an operator says that they are dead: they expire, a few at a time.
	stop()
	require.Eventually(t, func() bool { return zone() == preservation.Protected }, patience, 10*time.Millisecond)
	w.tell(t, "preservation", "default.kept.eu-west-1a", preservation.CommandRelease, preservation.ReleaseBody{})
	require.Eventually(t, func() bool { return w.instances.Counts("")[instance.Unhealthy] > 1 }, patience, 10*time.Millisecond)
	require.Less(t, w.instances.Counts("")[instance.Unhealthy], 12, "not all at once")
	require.Equal(t, preservation.Normal, zone())
}

// An operator's hold keeps what is silent, however few they are.
func TestHold(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.start(w.prober(&script{}))
	key, zone := "default.held.a", "default.held.none"
	w.tell(t, "preservation", zone, preservation.CommandHold, struct{}{})
	w.register(t, key, instance.RegisterBody{Check: ttl("1s", "500ms")})
	w.becomes(t, key, instance.Unknown, patience)
	w.beat(t, key, "")
	w.becomes(t, key, instance.Healthy, patience)
	require.Eventually(t, func() bool { return w.data(key).Protected }, patience, 10*time.Millisecond)
	require.Never(t, func() bool { return !w.routable(key) }, 3*time.Second, 50*time.Millisecond)
	require.Equal(t, instance.Suspect, w.state(key), "with half its weight")
	w.tell(t, "preservation", zone, preservation.CommandRelease, preservation.ReleaseBody{})
	w.becomes(t, key, instance.Unhealthy, patience)
}

func TestZoneLabel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "none", "a": "a", "EU West 1": "eu-west-1", "eu_west": "eu-west", "..": "none", "é": "none"} {
		require.Equal(t, want, cmp.Or(streams.LabelOf(name), preservation.NoZone), name)
	}
}

// held answers the probes of one instance when the test says so: without an answer of the instance.
type held struct {
	*script
	key   string
	gate  atomic.Pointer[chan struct{}]
	began chan struct{}
}

func (h *held) Check(ctx context.Context, target instance.Target) instance.Result {
	if gate := h.gate.Load(); gate != nil && target.Key == h.key {
		h.gate.Store(nil)
		h.began <- struct{}{}
		select {
		case <-*gate:
		case <-ctx.Done():
		}
		return timedOut
	}
	return h.script.Check(ctx, target)
}

// What began in the dark and fails after it may have failed by it, also where nothing had failed before.
func TestAProbeThatBeganInTheDark(t *testing.T) {
	t.Parallel()
	all := keys("dusk", 8)
	w, c := setup(t), &held{script: &script{}, key: all[7], began: make(chan struct{}, 1)}
	p := w.prober(c)
	p.blinds = time.Minute
	w.start(p)
	check := instance.Check{Type: instance.CheckTCP, Interval: "100ms", Timeout: "5s"}
	for _, key := range all {
		w.register(t, key, instance.RegisterBody{Check: check, Policy: instance.Policy{Fall: 1}})
	}
	for _, key := range all {
		w.becomes(t, key, instance.Healthy, patience)
	}
	c.setAll(timedOut, all[:7]...)
	require.Eventually(t, func() bool { return w.log.times("most probes fail at once") > 0 }, patience, time.Millisecond)
	gate := make(chan struct{})
	c.gate.Store(&gate)
	<-c.began
	c.setAll(instance.Result{OK: true}, all[:7]...)
	for _, key := range all[:7] {
		before := c.count(key)
		require.Eventually(t, func() bool { return c.count(key) > before+20 }, patience, time.Millisecond)
	}
	before := c.count(all[7])
	close(gate)
	require.Eventually(t, func() bool { return c.count(all[7]) > before+5 }, patience, time.Millisecond)
	require.NotContains(t, w.events(t, all[7]), "suspected")
}
