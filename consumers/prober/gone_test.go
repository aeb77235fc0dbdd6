package prober

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
)

// away is a world whose engine and prober can be stopped, while its NATS lives on.
func away(t *testing.T, w *world) (stop, start func()) {
	t.Helper()
	var end func()
	start = func() {
		stopProber := w.start(w.prober(&script{results: map[string]instance.Result{"default.dead.b": refused, "default.dead.c": refused}}))
		end = stopProber
	}
	stop = func() { end() }
	start()
	return stop, start
}

// The timer of NATS fires while nobody of this program lives, with a stamp that is on time, and its command is the first
// thing that is taken afterwards.
func TestNothingIsDeregisteredByTheDeathOfItsAgent(t *testing.T) {
	t.Parallel()
	w := setup(t)
	stop, start := away(t, w)
	after := instance.Policy{DeregisterCriticalAfter: "8s"} // all are unhealthy before the first of them is overdue
	beats, silent, dead := "default.dead.a", "default.dead.d", "default.dead.b"
	w.register(t, beats, instance.RegisterBody{Check: ttl("1s", "500ms"), Policy: after})
	w.register(t, silent, instance.RegisterBody{Check: ttl("2s", "500ms"), Policy: after})
	w.register(t, dead, instance.RegisterBody{Check: quick, Policy: after})
	follows := "default.dead.e"
	w.register(t, follows, instance.RegisterBody{Check: instance.Check{Type: instance.CheckAlias, Alias: "dead/a"}, Policy: after})
	for _, key := range []string{beats, silent, dead, follows} {
		w.becomes(t, key, instance.Unhealthy, patience)
	}
	stop()
	for _, key := range []string{beats, silent, dead, follows} { // the engine is here, but nobody looks
		require.Eventually(t, func() bool { return !w.data(key).Overdue.IsZero() }, patience, 10*time.Millisecond)
		require.Equal(t, instance.Unhealthy, w.state(key), key)
	}
	start()
	end := w.beating(t, 200*time.Millisecond, "", beats)
	w.becomes(t, dead, instance.Deregistered, patience)
	w.becomes(t, beats, instance.Healthy, patience)
	w.becomes(t, follows, instance.Healthy, patience)
	require.True(t, w.data(beats).Overdue.IsZero())
	took := w.becomes(t, silent, instance.Deregistered, patience)
	t.Logf("what is dead is deregistered %s after the others are back", took.Round(time.Millisecond))
	require.Contains(t, w.data(silent).Evidence.Kind, "ttl")
	require.Equal(t, []string{"unhealthy", "overdue", "deregistered"}, w.events(t, silent)[2:])
	require.NotContains(t, w.events(t, beats), "deregistered")
	end()
}

// Where nobody is away, it is deregistered as soon as its time is over.
func TestWhatIsOverdueIsDeregisteredAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	away(t, w)
	for key, check := range map[string]instance.Check{"default.dead.a": ttl("1s", "200ms"), "default.dead.b": quick} {
		w.register(t, key, instance.RegisterBody{Check: check, Policy: instance.Policy{DeregisterCriticalAfter: "2s"}})
		w.becomes(t, key, instance.Unhealthy, patience)
		took := w.becomes(t, key, instance.Deregistered, patience)
		require.Greater(t, took, 1500*time.Millisecond)
	}
}

// A registration that nobody looked at says nothing against the instance.
func TestARegistrationWaitsForItsOwner(t *testing.T) {
	t.Parallel()
	w := setup(t)
	key := "default.late.a"
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Pending, patience)
	raw, err := w.JS.Stream(w.ctx, "KV_instances")
	require.NoError(t, err)
	msg, err := raw.GetLastMsgForSubject(w.ctx, "$KV.instances."+key)
	require.NoError(t, err)
	var stored struct {
		Timers map[string]machines.Timer
	}
	require.NoError(t, json.Unmarshal(msg.Data, &stored))
	deadline := stored.Timers["deadline"]
	due, err := json.Marshal(deadline.At)
	require.NoError(t, err)
	over, err := json.Marshal(time.Now().Add(-time.Second).UTC())
	require.NoError(t, err)
	_, err = w.JS.Publish(w.ctx, msg.Subject, bytes.ReplaceAll(msg.Data, due, over)) // a minute has passed
	require.NoError(t, err)
	a := w.tell(t, "instance", key, "elapsed", machines.Elapsed{Timer: "deadline", Armed: deadline.Armed})
	require.Equal(t, instance.Pending, a.State)
	w.start(w.prober(&script{}))
	w.becomes(t, key, instance.Healthy, patience)
	require.Zero(t, w.data(key).Waits)
}

// A maintenance ends by a timer: nobody has to look at the instance.
func TestAMaintenanceEndsWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	w := setup(t)
	stop := w.start(w.prober(&script{}))
	key := "default.kept.a"
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Healthy, patience)
	stop()
	w.tell(t, "instance", key, instance.CommandMaintenance, instance.MaintenanceBody{Enabled: true, For: "1s"})
	require.Eventually(t, func() bool { m := w.data(key).Maintenance; return m == nil && len(w.events(t, key)) == 5 }, patience, 10*time.Millisecond)
	require.Equal(t, "maintenance.ended", w.events(t, key)[4])
}
