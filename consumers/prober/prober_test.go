package prober

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/providers/probe"
)

// patience is for what will come, on a machine with much else to do.
const patience = time.Minute

// One node with everything, the real instance machine and a checker of the test.
func TestOneNode(t *testing.T) {
	t.Parallel()
	w, checker := setup(t), &script{}
	w.start(w.prober(checker))
	for name, test := range map[string]func(*testing.T, *world, *script){
		"a registration is admitted once it was read back":     admitted,
		"a heartbeat makes it healthy, silence suspect":        silence,
		"one that is never heard becomes unhealthy":            neverHeard,
		"an instance's own word counts":                        ownWord,
		"beats of another generation change nothing":           otherGeneration,
		"probes are counted in a row":                          inARow,
		"what fails too often is deregistered":                 tooOften,
		"what changes too often is held down":                  flapping,
		"an alias is as healthy as what it follows":            alias,
		"a drain ends when nothing is in flight and all know":  drainAcknowledged,
		"a drain without a watcher ends, too":                  drainUnwatched,
		"a drain of one that does not say what it does, waits": drainSilent,
		"a maintenance ends":                                   maintenance,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, w, checker) })
	}
}

func admitted(t *testing.T, w *world, checker *script) {
	w.register(t, "default.none.a", instance.RegisterBody{})
	w.becomes(t, "default.none.a", instance.Healthy, patience)
	w.register(t, "default.none.b", instance.RegisterBody{Check: instance.Check{Type: instance.CheckScript, Command: []string{"true"}}})
	w.becomes(t, "default.none.b", instance.Deregistered, patience)
	require.Equal(t, []string{"registered", "registration.failed", "deregistered"}, w.events(t, "default.none.b"))
	require.Equal(t, 1, w.log.times(`instance=default.none.b reason="scripts are not enabled"`))

	checker.set("default.none.c", instance.Result{Class: instance.FailedForbidden, Output: "169.254.169.254:80 may not be connected to"})
	w.register(t, "default.none.c", instance.RegisterBody{Check: instance.Check{Type: instance.CheckTCP, Interval: "100ms"}})
	w.becomes(t, "default.none.c", instance.Unhealthy, patience)
	require.Eventually(t, func() bool { return checker.count("default.none.c") > 5 }, patience, time.Millisecond)
	require.Equal(t, 1, w.log.times("instance=default.none.c"), "once, not at every probe")
}

func silence(t *testing.T, w *world, _ *script) {
	key := "default.ttl.a"
	w.register(t, key, instance.RegisterBody{Check: ttl("2s", "1s")})
	w.becomes(t, key, instance.Unknown, patience)
	stop := w.beating(t, 300*time.Millisecond, "", key)
	w.becomes(t, key, instance.Healthy, patience)
	stop()
	last := time.Now()
	w.becomes(t, key, instance.Suspect, patience)
	require.Greater(t, time.Since(last), 1600*time.Millisecond)
	w.beat(t, key, "")
	w.becomes(t, key, instance.Healthy, patience)
	last = time.Now()
	w.becomes(t, key, instance.Unhealthy, patience)
	noticed := time.Since(last)
	t.Logf("silent death noticed after %s, of TTL + grace 3 s", noticed.Round(time.Millisecond))
	require.Greater(t, noticed, 2900*time.Millisecond)
	require.Contains(t, w.data(key).Evidence.Output, "silent for 2")
	w.beat(t, key, `{"status":"warning"}`)
	w.becomes(t, key, instance.Healthy, patience)
}

func neverHeard(t *testing.T, w *world, _ *script) {
	w.register(t, "default.mute.a", instance.RegisterBody{Check: ttl("1s", "500ms")})
	w.becomes(t, "default.mute.a", instance.Unhealthy, patience)
	require.Equal(t, []string{"registered", "admitted", "unhealthy"}, w.events(t, "default.mute.a"))
}

func ownWord(t *testing.T, w *world, _ *script) {
	key := "default.word.a"
	w.register(t, key, instance.RegisterBody{Check: ttl("1h", "1s")})
	w.becomes(t, key, instance.Unknown, patience)
	w.beat(t, key, `{"status":"passing"}`)
	w.becomes(t, key, instance.Healthy, patience)
	w.beat(t, key, `{"status":"critical","output":"disk full"}`)
	w.becomes(t, key, instance.Unhealthy, patience)
	require.Equal(t, "disk full", w.data(key).Evidence.Output)
	w.beat(t, key, `{"weight":40}`)
	w.becomes(t, key, instance.Healthy, patience)
	w.beat(t, key, `{"weight":40}`)
	require.Eventually(t, func() bool { r := w.data(key).Reported; return r != nil && *r == 40 }, patience, 10*time.Millisecond)
}

func otherGeneration(t *testing.T, w *world, _ *script) {
	key := "default.old.a"
	w.register(t, key, instance.RegisterBody{Check: ttl("1s", "200ms")})
	w.becomes(t, key, instance.Unknown, patience)
	stop := w.beating(t, 100*time.Millisecond, `{"generation":1}`, key)
	w.becomes(t, key, instance.Healthy, patience)
	w.register(t, key, instance.RegisterBody{Check: ttl("1s", "200ms")})
	w.becomes(t, key, instance.Unhealthy, patience)
	stop()
	w.beat(t, key, `{"generation":2}`)
	w.becomes(t, key, instance.Healthy, patience)
	require.NotContains(t, w.events(t, key), "suspected", "it died before it was heard")
}

var quick = instance.Check{Type: instance.CheckTCP, Interval: "200ms", Timeout: "1s"}

func inARow(t *testing.T, w *world, c *script) {
	key := "default.row.a"
	w.register(t, key, instance.RegisterBody{Check: quick, Policy: instance.Policy{NoFlap: true}})
	w.becomes(t, key, instance.Healthy, patience)
	require.GreaterOrEqual(t, c.count(key), 2)
	c.set(key, refused)
	w.becomes(t, key, instance.Unhealthy, patience)
	v := w.data(key).Evidence
	require.Equal(t, []any{"node-a", "tcp", 3, "connection refused", uint64(1)}, []any{v.Observer, v.Kind, v.Consecutive, v.Output, v.Generation})
	c.set(key, instance.Result{OK: true})
	w.becomes(t, key, instance.Healthy, patience)
	require.Equal(t, []string{"registered", "admitted", "healthy", "unhealthy", "healthy"}, w.events(t, key), "nothing else was told")
}

func tooOften(t *testing.T, w *world, c *script) {
	key := "default.often.a"
	w.register(t, key, instance.RegisterBody{Check: quick, Policy: instance.Policy{Fall: 2, MaxFailures: 4}})
	w.becomes(t, key, instance.Healthy, patience)
	c.set(key, refused)
	w.becomes(t, key, instance.Deregistered, patience)
	n := c.count(key)
	require.Equal(t, 4, w.data(key).Retries)
	require.Never(t, func() bool { return c.count(key) > n+1 }, time.Second, 50*time.Millisecond, "what is gone is not probed")
}

func flapping(t *testing.T, w *world, c *script) {
	key := "default.flap.a"
	w.register(t, "default.flap.b", instance.RegisterBody{}) // else it would be the last that is found
	w.becomes(t, "default.flap.b", instance.Healthy, patience)
	w.register(t, key, instance.RegisterBody{Check: quick, Policy: instance.Policy{Rise: 1, Fall: 1}})
	w.becomes(t, key, instance.Healthy, patience)
	end := time.Now().Add(patience)
	for n, ok := c.count(key), false; w.state(key) != instance.Flapping && time.Now().Before(end); ok = !ok {
		c.set(key, instance.Result{OK: ok, Class: map[bool]string{false: instance.FailedRefused}[ok], Output: "now and then"})
		require.Eventually(t, func() bool { return c.count(key) > n || w.state(key) == instance.Flapping }, patience, 5*time.Millisecond)
		n = c.count(key)
	}
	require.Equal(t, instance.Flapping, w.state(key))
	require.GreaterOrEqual(t, w.data(key).Flap.Score, 30.0)
	c.set(key, instance.Result{OK: true}) // the machine keeps it until its time is over, and then for as long as it is not calm
	require.Eventually(t, func() bool { return w.data(key).Flap.Calm }, patience, 10*time.Millisecond)
	require.Less(t, w.data(key).Flap.Score, 20.0)
	for n := c.count(key); w.data(key).Flap.Calm; n = c.count(key) {
		c.set(key, instance.Result{OK: n%2 == 0, Class: map[bool]string{true: instance.FailedRefused}[n%2 != 0], Output: "now and then"})
		require.Eventually(t, func() bool { return c.count(key) > n }, patience, 5*time.Millisecond)
	}
	require.GreaterOrEqual(t, w.data(key).Flap.Score, 30.0)
	require.Equal(t, instance.Flapping, w.state(key))
}

func alias(t *testing.T, w *world, c *script) {
	w.register(t, "default.front.a", instance.RegisterBody{Check: instance.Check{Type: instance.CheckAlias, Alias: "back/a"}})
	w.becomes(t, "default.front.a", instance.Unhealthy, patience)
	w.register(t, "default.back.a", instance.RegisterBody{Check: quick, Policy: instance.Policy{NoFlap: true}})
	w.becomes(t, "default.front.a", instance.Healthy, patience)
	c.set("default.back.a", refused)
	w.becomes(t, "default.back.a", instance.Unhealthy, patience)
	w.becomes(t, "default.front.a", instance.Unhealthy, 3*time.Second)
	require.Equal(t, "back/a is unhealthy", w.data("default.front.a").Evidence.Output)
}

// drains brings an instance into a drain of a minute and returns the revision.
func drains(t *testing.T, w *world, key string) uint64 {
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Healthy, patience)
	a := w.tell(t, "instance", key, instance.CommandShutdown, instance.ShutdownBody{Drain: "1m"})
	w.becomes(t, key, instance.Draining, patience)
	return a.Revision
}

func (w *world) acknowledge(t *testing.T, service, watcher string, index uint64) {
	t.Helper()
	require.NoError(t, w.NC.Publish("instar.ack."+service, fmt.Appendf(nil, `{"watcher":%q,"index":%d}`, watcher, index)))
}

func drainAcknowledged(t *testing.T, w *world, _ *script) {
	key := "default.drained.a"
	w.acknowledge(t, "default.drained", "w1", 1)
	w.acknowledge(t, "default.drained", "w2", 1)
	revision := drains(t, w, key)
	stays := func(why string) {
		t.Helper()
		require.Never(t, func() bool { return w.state(key) != instance.Draining }, 1500*time.Millisecond, 50*time.Millisecond, why)
	}
	w.acknowledge(t, "default.drained", "w1", revision)
	w.beat(t, key, `{"inFlight":2}`)
	stays("two are in flight, one watcher does not know")
	w.beat(t, key, `{"inFlight":0}`)
	stays("one watcher does not know")
	w.register(t, "default.elsewhere.a", instance.RegisterBody{}) // a later revision is there
	w.becomes(t, "default.elsewhere.a", instance.Healthy, patience)
	w.acknowledge(t, "default.drained", "w2", revision+1)
	w.becomes(t, key, instance.Deregistered, patience) // long before the deadline: see why, below
	require.Equal(t, []string{"registered", "admitted", "healthy", "draining", "drain.completed", "deregistered"}, w.events(t, key))
	require.Equal(t, fmt.Sprintf("nothing in flight, 2 watchers confirmed revision %d", revision), w.data(key).Drain.Early)
}

func drainUnwatched(t *testing.T, w *world, _ *script) {
	drains(t, w, "default.alone.a")
	w.beat(t, "default.alone.a", `{"inFlight":0}`)
	w.becomes(t, "default.alone.a", instance.Deregistered, patience)
	require.Equal(t, "nothing in flight, nobody watches", w.data("default.alone.a").Drain.Early)
}

func drainSilent(t *testing.T, w *world, _ *script) {
	revision := drains(t, w, "default.quiet.a")
	w.acknowledge(t, "default.quiet", "w1", revision)
	w.beat(t, "default.quiet.a", "")
	require.Never(t, func() bool { return w.state("default.quiet.a") != instance.Draining }, 3*time.Second, 50*time.Millisecond)
}

func maintenance(t *testing.T, w *world, _ *script) {
	key := "default.kept.a"
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Healthy, patience)
	w.tell(t, "instance", key, instance.CommandMaintenance, instance.MaintenanceBody{Enabled: true, For: "1s"})
	require.Eventually(t, func() bool { return w.data(key).Maintenance != nil }, patience, 5*time.Millisecond)
	require.Eventually(t, func() bool { return w.data(key).Maintenance == nil }, patience, 10*time.Millisecond)
	require.Contains(t, w.events(t, key), "maintenance.ended")
}

// The real checker against a real server.
func TestProbesOfARealServer(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.start(w.prober(&probe.Prober{}))
	var broken atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(rw, "no database", http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	key := "default.web.a"
	check := instance.Check{Type: instance.CheckHTTP, Path: "/health", Interval: "200ms", Timeout: "1s"}
	w.register(t, key, instance.RegisterBody{NodeAddress: s.Listener.Addr().String(), Check: check})
	w.becomes(t, key, instance.Healthy, patience)
	broken.Store(true)
	w.becomes(t, key, instance.Unhealthy, patience)
	v := w.data(key).Evidence
	require.Equal(t, []any{503, "503 Service Unavailable"}, []any{v.Status, v.Output})
	broken.Store(false)
	w.becomes(t, key, instance.Healthy, patience)
	w.register(t, "default.web.b", instance.RegisterBody{NodeAddress: net.JoinHostPort("169.254.169.254", "80"), Check: check})
	w.becomes(t, "default.web.b", instance.Deregistered, patience)
	item, _ := w.instances.Get("default.web.b")
	require.NotNil(t, item.Value)
}
