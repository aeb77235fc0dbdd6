package prober

import (
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
	w.start(w.prober(&script{}))
	w.register(t, "default.first.z", instance.RegisterBody{Check: ttl("20s", "1s")})
	w.becomes(t, "default.first.z", instance.Unknown, patience) // the prober works
	beaten, ill, slow := "default.first.a", "default.first.b", "default.first.c"
	w.beat(t, beaten, `{"generation":1}`)
	w.beat(t, ill, `{"generation":1,"status":"critical"}`)
	w.beat(t, slow, `{"generation":1}`)
	require.NoError(t, w.NC.Flush())
	w.register(t, beaten, instance.RegisterBody{Check: ttl("20s", "1s")})
	w.register(t, ill, instance.RegisterBody{Check: ttl("20s", "1s")})
	w.register(t, slow, instance.RegisterBody{Check: ttl("20s", "1s"), Policy: instance.Policy{Rise: 2}})
	w.becomes(t, beaten, instance.Healthy, patience)
	item, _ := w.instances.Get(beaten)
	require.EqualValues(t, 2, item.Version)
	require.Equal(t, []string{"registered", "admitted", "healthy"}, w.events(t, beaten))
	w.becomes(t, ill, instance.Unhealthy, patience)
	w.becomes(t, slow, instance.Unknown, patience)
}

// A heartbeat says what its members are called, or nothing: one that says critical must not be taken for passing.
func TestNamesInHeartbeatsAreExact(t *testing.T) {
	t.Parallel()
	require.Equal(t, "critical", read([]byte(`{"status":"critical","generation":3}`)).Status)
	for _, body := range []string{`{"Status":"critical"}`, `{"status":"passing","STATUS":"critical"}`, `{"stauts":"critical"}`, `{"status":"failing"}`, `{} {}`, `{"inFlight":-1}`, `[]`} {
		require.Nil(t, read([]byte(body)), body)
	}
}
