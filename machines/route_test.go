package machines_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// The route of an effect is a function of the data: it is in the message when the effect starts and when it is sent again, and survives being stored.
func TestRoute(t *testing.T) {
	t.Parallel()
	for bought, want := range map[string][2]string{"17:00:00": {"", "heat"}, "gpu": {"gpu", "heat=gpu"}, "No Label": {"", "heat"}, "": {"", "heat"}} {
		d := definition()
		d.Effects[0].Route, d.Effects[0].Parallel = func(t *tx) string {
			if t.Data.Bought == "" {
				return "early" // it is called after the action
			}
			return bought
		}, 7
		m := machines.Define(d)
		info, _ := m.Effect("heat")
		require.True(t, info.Routed)
		require.Equal(t, 7, info.Parallel)
		e, out, err := m.Step(m.New("default", "", "a"), machines.Input{Command: "buy", Time: start, Body: []byte(`{"watts":1}`)})
		require.NoError(t, err)
		e.Outbox = out.Messages
		raw, err := json.Marshal(e)
		require.NoError(t, err)
		e, err = m.Decode(raw)
		require.NoError(t, err)
		seen := 0
		for _, msg := range append(e.Outbox, m.Pending(e)...) {
			if msg.Kind == machines.KindEffect {
				seen++
				require.Equal(t, want, [2]string{msg.Route, msg.Queue()})
			} else {
				require.Empty(t, msg.Route)
			}
		}
		require.Equal(t, 2, seen)
	}
}
