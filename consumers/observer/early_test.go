package observer

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/publish"
)

// With sweeps an hour apart, early looks alone find what the world shows soon after an effect; findings do not begin them anew.
func TestAnEffectThatEndsIsFollowedByLooks(t *testing.T) {
	t.Parallel()
	k := newLooker()
	k.see["a"] = func(context.Context) (machines.Finding, error) {
		if n := len(k.of("a")); n == 4 || n == 5 { // looks at one entity never overlap
			return machines.Finding{Input: "seen", Data: seenBody{"warm"}}, nil
		}
		return machines.Finding{}, nil
	}
	w := observed(t, k, &Observer{Every: time.Hour, transitEvery: time.Hour})
	w.lamp("other", "create", "warm")
	w.lamp("a", "create", "heat")
	w.Eventually("one without effects is looked at", func() bool { return len(k.of("other")) >= 3 })
	require.Empty(t, k.of("a"), "nothing is expected while the effect is under way")
	e, _ := w.Entity(lampMachine, "default.a")
	body, err := json.Marshal(machines.Report{Attempt: e.Effects["heating"].ID})
	require.NoError(t, err)
	require.Equal(t, machines.Applied, w.Ask(publish.Command{Machine: "lamp", Key: "default.a", Name: "heated", Body: body}).Outcome)
	w.Eventually("the world is seen", func() bool { return w.seen("a") == 2 })
	w.Eventually("and looked at further", func() bool { return len(k.of("a")) >= 7 })
	require.NotContains(t, k.of("a"), true)

	w.lamp("other", "remove")
	n := len(k.of("other"))
	w.lamp("last", "create", "warm")
	w.Eventually("looks at another one", func() bool { return len(k.of("last")) >= 4 })
	require.LessOrEqual(t, len(k.of("other")), n+1, "its state has no poll")
}

func TestEarlyLooksGrowRare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		told time.Duration
		want []time.Duration
	}{
		"NothingTells":  {time.Hour, []time.Duration{0, 25, 75, 175, 375, 775, 1575, 3175}},
		"TheGatewayDid": {60 * time.Millisecond, []time.Duration{0, 25, 175, 375, 775, 1575, 3175}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o, p, began := &Observer{transitEvery: transitSweep, queue: make(chan look, 1)}, &passage{}, time.Now()
				looked := func() { o.mu.Lock(); p.looked = time.Now(); o.mu.Unlock() }
				defer time.AfterFunc(c.told, looked).Stop()
				go func() { defer close(o.queue); o.early(t.Context(), "default.a", p) }()
				var at []time.Duration
				for l := range o.queue {
					require.Equal(t, look{"default.a", false}, l)
					at = append(at, time.Since(began)/time.Millisecond)
					wait.For(t.Context(), time.Millisecond) // a look comes a little later than it was asked for
					looked()
				}
				require.Equal(t, c.want, at)
			})
		})
	}
}
