package prober

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
)

func (w *world) zone(service, zone string) string {
	item, _ := w.preservations.Get("default." + service + "." + zone)
	return item.State
}

// zoneOf registers instances of a service in a zone and waits until they are found.
func (w *world) zoneOf(t *testing.T, service, zone string, n int, check instance.Check) []string {
	t.Helper()
	var list []string
	for i := range n {
		key := fmt.Sprintf("default.%s.%s-%d", service, zone, i)
		w.register(t, key, instance.RegisterBody{Check: check, Zone: zone})
		list = append(list, key)
	}
	if check.Type == instance.CheckTTL {
		return list
	}
	for _, key := range list {
		w.becomes(t, key, instance.Healthy, patience)
	}
	return list
}

func (c *script) setAll(r instance.Result, keys ...string) {
	for _, key := range keys {
		c.set(key, r)
	}
}

// All probes of a zone fail at once, without an answer or with one: its instances stay, and those of the other zone go
// their own way.
func TestAZoneOfProbedInstances(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]instance.Result{"no answer": timedOut, "refused": refused} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, c := setup(t), &script{}
			w.start(w.prober(c))
			a, b := w.zoneOf(t, "web", "a", 10, quick), w.zoneOf(t, "web", "b", 10, quick)
			c.setAll(failure, b...)
			c.set(a[0], refused)
			require.Eventually(t, func() bool { return w.zone("web", "b") == preservation.Protected }, patience, 5*time.Millisecond)
			w.becomes(t, a[0], instance.Unhealthy, patience)
			require.Never(t, func() bool { return w.in(instance.Unhealthy, b...) > bound(len(a)+len(b)) }, 3*time.Second, 20*time.Millisecond)
			require.Empty(t, w.zone("web", "a"))
			c.setAll(instance.Result{OK: true}, b...)
			require.Eventually(t, func() bool { return w.zone("web", "b") == preservation.Recovering }, patience, 5*time.Millisecond)
			require.Eventually(t, func() bool { return w.in(instance.Healthy, b...) == len(b) && !w.data(b[0]).Protected }, patience, 20*time.Millisecond)
		})
	}
}

// Those that say themselves that they are not well are believed, but not all at once.
func TestWhatAnswersIsBelieved(t *testing.T) {
	t.Parallel()
	w, c := setup(t), &script{}
	w.start(w.prober(c))
	all := w.zoneOf(t, "web", "a", 20, quick)
	c.setAll(refused, all[:8]...)
	require.Eventually(t, func() bool { return w.in(instance.Unhealthy, all...) == bound(len(all)) }, patience, 5*time.Millisecond)
	require.Never(t, func() bool { return w.in(instance.Unhealthy, all...) > bound(len(all)) }, expirySweep/2, 20*time.Millisecond)
	require.Eventually(t, func() bool { return w.in(instance.Unhealthy, all...) == 8 }, patience, 20*time.Millisecond)
	require.Empty(t, w.zone("web", "a"))
}

// One that comes and goes uses up nobody's turn: who dies beside it is taken out in its time.
func TestWhoComesBackIsNotCounted(t *testing.T) {
	t.Parallel()
	w, c := setup(t), &script{}
	w.start(w.prober(c))
	check := quick
	check.Interval = "100ms"
	all := w.zoneOf(t, "web", "a", 5, check)
	for range bound(len(all)) {
		c.set(all[0], refused)
		w.becomes(t, all[0], instance.Unhealthy, patience)
		c.set(all[0], instance.Result{OK: true})
		w.becomes(t, all[0], instance.Healthy, patience)
	}
	c.set(all[1], refused)
	w.becomes(t, all[1], instance.Unhealthy, expirySweep/2)
}

// Silence and failed probes are counted together.
func TestBothCauses(t *testing.T) {
	t.Parallel()
	w, c := setup(t), &script{}
	w.start(w.prober(c))
	probed := w.zoneOf(t, "web", "a", 6, quick)
	var silent []string
	for i := range 6 {
		key := fmt.Sprintf("default.web.ttl-%d", i)
		w.register(t, key, instance.RegisterBody{Check: ttl("2s", "10s"), Zone: "a"})
		silent = append(silent, key)
	}
	stop := w.beating(t, 300*time.Millisecond, "", silent...)
	for _, key := range silent {
		w.becomes(t, key, instance.Healthy, patience)
	}
	stop()
	w.beating(t, 300*time.Millisecond, "", silent[1:]...)
	w.becomes(t, silent[0], instance.Suspect, patience)
	c.set(probed[0], timedOut)
	w.becomes(t, probed[0], instance.Unhealthy, patience)
	require.Empty(t, w.zone("web", "a"), "two of twelve")
	c.set(probed[1], timedOut)
	require.Eventually(t, func() bool { return w.zone("web", "a") == preservation.Protected }, patience, 5*time.Millisecond)
	require.Never(t, func() bool { return !w.routable(probed[1], silent[0]) }, 2*time.Second, 20*time.Millisecond)
}

// Who takes over a zone that is protected has seen nobody well: the protection is not its to end, before it has.
func TestProtectionOutlivesItsOwner(t *testing.T) {
	t.Parallel()
	w, c, owned := setup(t), &script{}, &shares{set: cluster.All}
	first, second := w.prober(c), w.prober(c)
	first.Shares = owned
	w.start(first)
	probed := w.zoneOf(t, "web", "a", 4, quick)
	quiet := w.zoneOf(t, "batch", "a", 4, ttl("3s", "1s"))
	stop := w.beating(t, 300*time.Millisecond, "", quiet...)
	for _, key := range quiet {
		w.becomes(t, key, instance.Healthy, patience)
	}
	stop()
	c.setAll(timedOut, probed...)
	both := func(state string) bool { return w.zone("web", "a") == state && w.zone("batch", "a") == state }
	require.Eventually(t, func() bool { return both(preservation.Protected) }, patience, 5*time.Millisecond)
	w.takeover(t, owned, second)
	require.Never(t, func() bool { return !both(preservation.Protected) }, 2500*time.Millisecond, 10*time.Millisecond)
	w.beating(t, 300*time.Millisecond, "", quiet...)
	c.setAll(instance.Result{OK: true}, probed...)
	require.Eventually(t, func() bool { return both(preservation.Recovering) }, patience, 10*time.Millisecond)
}

// What loses a probe now and then keeps its state, and is not held down: only hard states count.
func TestPacketLossIsNoFlapping(t *testing.T) {
	t.Parallel()
	w, c := setup(t), &script{lossy: 4}
	w.start(w.prober(c))
	check := quick
	check.Interval = "100ms"
	all := w.zoneOf(t, "web", "a", 4, check)
	for _, key := range all {
		require.Eventually(t, func() bool { return c.count(key) > 60 }, patience, 10*time.Millisecond)
	}
	for _, key := range all {
		require.Equal(t, []string{"registered", "admitted", "healthy"}, w.events(t, key))
	}
}

// Of those that change all the time as few are held down as may be lost.
func TestFlappingIsBounded(t *testing.T) {
	t.Parallel()
	w, c := setup(t), &script{}
	w.start(w.prober(c))
	check := quick
	check.Interval = "100ms"
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprintf("default.web.i-%d", i))
		w.register(t, all[i], instance.RegisterBody{Check: check, Policy: instance.Policy{Rise: 1, Fall: 1}})
	}
	for _, key := range all {
		w.becomes(t, key, instance.Healthy, patience)
	}
	until, held := time.Now().Add(patience), 0
	for n := 0; time.Now().Before(until); n++ {
		c.setAll(map[int]instance.Result{0: refused, 1: {OK: true}}[n%2], all[:4]...)
		before := c.count(all[0])
		require.Eventually(t, func() bool {
			now := w.in(instance.Flapping, all...)
			require.LessOrEqual(t, now, bound(len(all)))
			if now == bound(len(all)) && held < now { // and now for the others
				until = time.Now().Add(4 * time.Second)
			}
			held = max(held, now)
			return c.count(all[0]) > before
		}, patience, 5*time.Millisecond)
	}
	require.Equal(t, bound(len(all)), held)
}
