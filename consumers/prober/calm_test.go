package prober

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/streams"
)

// A registry that is left alone stores nothing: neither for those that beat, nor for a zone that is held, with an instance
// in it that is silent and protected, and one that is probed and fails.
func TestLeftAloneItIsCalm(t *testing.T) {
	t.Parallel()
	w, c := setup(t), &script{}
	w.start(w.prober(c))
	all := keys("calm", 300)
	for _, key := range all {
		w.register(t, key, instance.RegisterBody{Check: ttl("15s", "1s")}) // a beat of 300 may take its time
	}
	stop := w.beating(t, time.Second, "", all...)
	for _, key := range all {
		w.becomes(t, key, instance.Healthy, patience)
	}
	fails := "default.calm.fails"
	w.register(t, fails, instance.RegisterBody{Check: quick})
	w.becomes(t, fails, instance.Healthy, patience)
	w.tell(t, "preservation", "default.calm.none", preservation.CommandHold, struct{}{})
	stop()
	silent, rest := all[0], all[1:]
	w.beating(t, time.Second, "", rest...)
	c.set(fails, timedOut)
	w.becomes(t, fails, instance.Suspect, patience)
	w.becomes(t, silent, instance.Suspect, patience)
	stored := func() (n uint64) {
		for _, name := range []string{streams.CommandStream, streams.EventStream, "KV_instances", "KV_preservations"} {
			s, err := w.JS.Stream(w.ctx, name)
			require.NoError(t, err)
			n += s.CachedInfo().State.LastSeq
		}
		return n
	}
	var before uint64
	require.Eventually(t, func() bool { // what had begun has ended
		last := before
		before = stored()
		return last == before
	}, patience, 3*time.Second)
	until, probes := time.Now().Add(3*sameAgain+time.Second), c.count(fails)
	require.Eventually(t, func() bool { return time.Now().After(until) }, 2*patience, time.Second)
	require.Equal(t, before, stored())
	require.Greater(t, c.count(fails), probes, "it is looked at all the while")
	require.True(t, w.routable(silent, fails))
	require.Equal(t, len(rest), w.in(instance.Healthy, rest...))
}
