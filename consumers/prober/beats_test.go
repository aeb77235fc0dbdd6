package prober

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/prober/heartbeat"
	"github.com/bcc94042/instar/machines/instance"
)

// Who owns a service says when its instances were heard; nobody else does, and nobody says it of one that was not.
func TestWhenInstancesWereHeardIsTold(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.start(w.prober(&script{}))
	for _, id := range []string{"default.told.loud", "default.told.mute"} {
		w.register(t, id, instance.RegisterBody{Check: ttl("1m", "30s")})
		w.becomes(t, id, instance.Unknown, patience)
	}
	began := time.Now()
	stop := w.beating(t, 100*time.Millisecond, "", "default.told.loud")
	w.becomes(t, "default.told.loud", instance.Healthy, patience)
	stop()
	ask := func(service string) (heartbeat.Heard, error) {
		m, err := w.NC.Request(w.Names.Heard(), []byte(service), patience)
		if err != nil {
			return nil, err
		}
		var heard heartbeat.Heard
		return heard, json.Unmarshal(m.Data, &heard)
	}
	heard, err := ask("default.told loud mute nobody")
	require.NoError(t, err)
	require.Len(t, heard, 1)
	require.Contains(t, heard, "loud")
	require.LessOrEqual(t, heard["loud"], time.Since(began).Milliseconds())
	first := heard["loud"]
	require.Eventually(t, func() bool {
		heard, err := ask("default.told loud")
		return err == nil && heard["loud"] > first
	}, patience, 5*time.Millisecond, "it is silent now")
	for _, of := range []string{"default.nobody loud", "default.told", "default.told " + strings.Repeat("mute ", 500) + "loud"} {
		heard, err = ask(of)
		require.NoError(t, err)
		require.Empty(t, heard, "nobody was asked about who was heard")
	}
}

// Whatever wakes the loop after a standstill, nothing is decided from the silence of that time.
func TestAStandstillIsSeenBeforeAnythingIsDue(t *testing.T) {
	t.Parallel()
	s := newStill(setup(t))
	s.timers.Start(s.at)
	s.at += time.Minute
	s.run()
	require.Equal(t, s.at, s.floor)
}
