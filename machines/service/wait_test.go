package service_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
)

// Who reads events learns that somebody waits for the specification, and how long.
func TestSpecAcceptedTellsTheWait(t *testing.T) {
	t.Parallel()
	accepted := func(wait time.Duration) map[string]any {
		in := machines.Input{Command: service.CommandCreate, Body: json.RawMessage(`{"spec":{"image":"hello:1","forceReplace":true}}`), Time: time.Unix(1, 0), Wait: wait}
		_, out, err := service.Machine.Step(service.Machine.New("default", "", "web"), in)
		require.NoError(t, err)
		for _, m := range out.Messages {
			if m.Name == service.EventSpecAccepted {
				var e struct{ Data map[string]any }
				require.NoError(t, json.Unmarshal(m.Body, &e))
				require.Equal(t, true, e.Data["forceReplace"])
				return e.Data
			}
		}
		t.Fatal("no service.spec.accepted")
		return nil
	}
	require.Equal(t, "30s", accepted(30 * time.Second)["wait"])
	require.NotContains(t, accepted(0), "wait")
}
