package prober

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
)

// takeover gives all that one node owns to another one, which has heard nothing of what was said before.
func (w *world) takeover(t *testing.T, from *shares, to *Prober) {
	t.Helper()
	require.NoError(t, w.NC.Flush())
	from.give(0)
	to.Node = "node-b"
	w.start(to)
}

// drain begins a drain of an instance with nothing in flight.
func (w *world) drain(t *testing.T, key string) uint64 {
	t.Helper()
	a := w.tell(t, "instance", key, instance.CommandShutdown, instance.ShutdownBody{Drain: "2m"})
	w.becomes(t, key, instance.Draining, patience)
	w.beating(t, 200*time.Millisecond, `{"inFlight":0}`, key)
	return a.Revision
}

func (w *world) keepsDraining(t *testing.T, key, why string) {
	t.Helper()
	require.Never(t, func() bool { return w.state(key) != instance.Draining }, 1500*time.Millisecond, 20*time.Millisecond, why)
}

// A new owner knows none of the watchers of the one before: that one of them has confirmed says nothing of the others.
func TestDrainAfterATakeover(t *testing.T) {
	t.Parallel()
	w, key, owned := setup(t), "default.web.a", &shares{set: cluster.All}
	first, second := w.prober(&script{}), w.prober(&script{})
	first.Shares, second.listens = owned, 6*time.Second
	w.start(first)
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Healthy, patience)
	w.acknowledge(t, "default.web", "w1", 1)
	w.acknowledge(t, "default.web", "w2", 1)
	w.takeover(t, owned, second)
	taken := time.Now()
	revision := w.drain(t, key)
	w.acknowledge(t, "default.web", "w1", revision)
	w.keepsDraining(t, key, "w2 still sends to it, and was not heard yet")
	w.acknowledge(t, "default.web", "w2", 1)
	require.Never(t, func() bool { w.acknowledge(t, "default.web", "w1", revision); return w.state(key) != instance.Draining },
		time.Until(taken.Add(7*time.Second)), 100*time.Millisecond, "w2 does not know")
	w.acknowledge(t, "default.web", "w2", revision)
	w.becomes(t, key, instance.Deregistered, patience)
	require.Contains(t, w.data(key).Drain.Early, "2 watchers")
}

// Who was registered first, and ended, under this owner is waited for no longer when it is back: nobody knows it who was not heard.
func TestDrainAgain(t *testing.T) {
	t.Parallel()
	w, key, owned := setup(t), "default.web.a", &shares{set: cluster.All}
	first, second := w.prober(&script{}), w.prober(&script{})
	first.Shares = owned
	w.start(first)
	for range 2 {
		w.register(t, key, instance.RegisterBody{})
		w.becomes(t, key, instance.Healthy, patience)
		w.drain(t, key)
		w.becomes(t, key, instance.Deregistered, patience)
	}
	w.takeover(t, owned, second)
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Healthy, patience)
	w.drain(t, key)
	w.keepsDraining(t, key, "whoever had it from the owner before was not heard")
}

// The same, when nobody watches: the silence must have lasted for the life of a watcher.
func TestDrainAfterATakeoverUnwatched(t *testing.T) {
	t.Parallel()
	w, key, owned := setup(t), "default.web.a", &shares{set: cluster.All}
	first, second := w.prober(&script{}), w.prober(&script{})
	first.Shares, second.listens = owned, 3*time.Second
	w.start(first)
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Healthy, patience)
	w.takeover(t, owned, second)
	taken := time.Now()
	w.drain(t, key)
	w.becomes(t, key, instance.Deregistered, patience)
	require.Greater(t, time.Since(taken), 2900*time.Millisecond)
}

// While the connection was away, watchers may have spoken that were never heard before.
func TestDrainAfterAReconnect(t *testing.T) {
	t.Parallel()
	w, key := setup(t), "default.web.a"
	p := w.prober(&script{})
	p.listens = 4 * time.Second
	w.start(p)
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Healthy, patience)
	w.acknowledge(t, "default.web", "w1", 1)
	require.NoError(t, w.NC.ForceReconnect())
	require.Eventually(t, w.NC.IsConnected, patience, time.Millisecond)
	back := time.Now()
	revision := w.drain(t, key)
	w.acknowledge(t, "default.web", "w1", revision)
	w.becomes(t, key, instance.Deregistered, patience)
	require.Greater(t, time.Since(back), 3900*time.Millisecond)
}

// A watcher says what it acts on now, which may be less than before: it has begun anew, or two have one name.
func TestDrainWaitsForWhatWasSaidLast(t *testing.T) {
	t.Parallel()
	w, key := setup(t), "default.web.a"
	w.start(w.prober(&script{}))
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Healthy, patience)
	w.acknowledge(t, "default.web", "w1", 1000)
	w.acknowledge(t, "default.web", "w1", 1)
	revision := w.drain(t, key)
	w.keepsDraining(t, key, "it has said that it acts on revision 1")
	w.acknowledge(t, "default.web", "w1", revision)
	w.becomes(t, key, instance.Deregistered, patience)
}

// A drain that was cancelled and begun again is another one, also when the news of both come as one: whoever has confirmed
// the first knows nothing of what came between.
func TestADrainOfBeforeIsNotTheNext(t *testing.T) {
	t.Parallel()
	w, key := setup(t), "default.web.a"
	l := (&Prober{Deps: w.Deps, Shares: cluster.Everything{}, Instances: w.instances}).newLoop(t.Context())
	l.claim(cluster.All, 0)
	at := time.Now()
	draining := func(revision uint64, since time.Time) *tracked {
		rec := &instance.Record{Namespace: "default", Service: "web", ID: "a", State: instance.Draining, Since: since, Generation: 1, Data: instance.Known{Terms: &instance.Terms{}}}
		l.take(&index.Item{Key: key, State: instance.Draining, Revision: revision, Value: rec})
		return l.tracked[key]
	}
	draining(5, at)
	l.onHeartbeat(&nats.Msg{Subject: "instar.hb." + key, Data: []byte(`{"inFlight":0}`)}, l.now())
	require.True(t, l.tracked[key].idle)
	require.EqualValues(t, 5, draining(6, at).drainAt, "it is the same, with another label")
	again := draining(9, at.Add(time.Second))
	require.EqualValues(t, 9, again.drainAt)
	require.False(t, again.idle, "it was said of the one before")
}

// Who confirms what nobody here has yet has it from a history that was lost: it is waited for until it knows this one.
func TestConfirmationsOfALostHistory(t *testing.T) {
	t.Parallel()
	w, key := setup(t), "default.web.a"
	w.start(w.prober(&script{}))
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Healthy, patience)
	w.acknowledge(t, "default.web", "w1", 1<<40)
	w.acknowledge(t, "default.web", "w2", hasLeft)
	revision := w.drain(t, key)
	w.keepsDraining(t, key, "w1 speaks of another store")
	w.acknowledge(t, "default.web", "w1", revision)
	w.becomes(t, key, instance.Deregistered, patience)
}
