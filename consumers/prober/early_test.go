package prober

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
)

// The first heartbeat may be faster than the news of the registration; it counts when it names its generation.
func TestEarlyHeartbeats(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.start(w.prober(&script{}))
	early, vague, again := "default.early.a", "default.early.b", "default.early.c"
	w.register(t, again, instance.RegisterBody{Check: ttl("20s", "1s")})
	w.becomes(t, again, instance.Unknown, patience)
	w.beat(t, early, `{"generation":1}`)
	w.beat(t, vague, "")
	w.beat(t, again, `{"generation":2}`)
	require.NoError(t, w.NC.Flush())
	require.Never(t, func() bool { return w.state(again) != instance.Unknown }, 200*time.Millisecond, 10*time.Millisecond, "it is not of this generation")
	for _, key := range []string{early, vague, again} {
		w.register(t, key, instance.RegisterBody{Check: ttl("20s", "1s")})
	}
	w.becomes(t, early, instance.Healthy, 5*time.Second)
	w.becomes(t, again, instance.Healthy, 5*time.Second)
	w.becomes(t, vague, instance.Unknown, patience)
	require.Equal(t, []string{"registered", "admitted"}, w.events(t, vague), "the heartbeat may be of a process before")
}

// The first heartbeat and the admission are one change, when it does not let wait for itself.
func TestFirstHeartbeatRidesAlong(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.prober(&script{})
	p.hold = time.Hour // until it is there
	w.start(p)
	held := func(key string, policy instance.Policy) {
		t.Helper()
		w.register(t, key, instance.RegisterBody{Check: ttl("20s", "1s"), Policy: policy})
	}
	told := func(key, state string, events ...string) {
		t.Helper()
		w.becomes(t, key, state, patience)
		all := slices.DeleteFunc(w.events(t, key), func(e string) bool { return e == "command.refused" }) // of a generation that ended meanwhile
		require.Equal(t, append([]string{"registered"}, events...), all)
	}
	held("default.first.slow", instance.Policy{Rise: 2})
	told("default.first.slow", instance.Unknown, "admitted") // one beat would not be enough: nothing to wait for; the prober works

	held("default.first.a", instance.Policy{})
	w.becomes(t, "default.first.a", instance.Pending, patience)
	w.beat(t, "default.first.a", `{"generation":1}`)
	told("default.first.a", instance.Healthy, "admitted", "healthy")
	item, _ := w.instances.Get("default.first.a")
	require.EqualValues(t, 2, item.Version)

	held("default.first.ill", instance.Policy{})
	w.beat(t, "default.first.ill", `{"generation":1,"status":"critical"}`)
	told("default.first.ill", instance.Unhealthy, "admitted", "unhealthy")

	held("default.first.ends", instance.Policy{})
	w.tell(t, "instance", "default.first.ends", instance.CommandShutdown, instance.ShutdownBody{Drain: "10s"})
	told("default.first.ends", instance.Draining, "draining")

	held("default.first.again", instance.Policy{})
	held("default.first.again", instance.Policy{})
	w.becomes(t, "default.first.again", instance.Pending, patience)
	w.beat(t, "default.first.again", `{"generation":1}`)
	w.beat(t, "default.first.again", `{"generation":2}`)
	told("default.first.again", instance.Healthy, "registered", "admitted", "healthy")
}
