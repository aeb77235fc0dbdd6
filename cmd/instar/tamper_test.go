package main

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/server/config"
)

// An event that was taken out of the stream by hand is missed: between others by whoever verifies the timeline, at its end by the engine, which publishes it again.
func TestARemovedEventIsMissed(t *testing.T) {
	t.Parallel()
	for _, durability := range []string{"interval", "fsync"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway, c.Durability = config.GatewaySimulated, durability })
			w.must("service", "create", "web", "--image", "sim:ok", "--wait")
			w.must("service", "create", "other", "--image", "sim:ok", "--wait")
			w.must("service", "update", "web", "--image", "sim:ok", "--env", "A=b", "--wait")
			var list []struct {
				ID     string `json:"id"`
				Seq    uint64 `json:"seq"`
				Before uint64 `json:"previous"`
			}
			require.NoError(t, json.Unmarshal([]byte(w.must("service", "events", "web", "-o", "json")), &list))
			require.Greater(t, len(list), 5)
			require.Zero(t, list[0].Before)
			between := 0 // those of another entity
			for _, e := range list[1:] {
				between += int(e.Seq - 1 - e.Before)
			}
			require.Positive(t, between)
			require.Contains(t, w.must("service", "events", "web", "--verify"), "events is complete")

			nc, err := nats.Connect(w.nats)
			require.NoError(t, err)
			defer nc.Close()
			js, err := jetstream.New(nc)
			require.NoError(t, err)
			events, err := js.Stream(t.Context(), "EVENTS")
			require.NoError(t, err)
			require.NoError(t, events.DeleteMsg(t.Context(), list[0].Seq))
			require.Contains(t, w.must("service", "events", "web", "--verify"), "earlier events are gone", "the oldest expire, too")
			require.NoError(t, events.DeleteMsg(t.Context(), list[3].Seq))
			code, out := w.cli("service", "events", "web", "--verify")
			require.Equal(t, command.ExitGeneric, code, out)
			require.Contains(t, out, "were removed")

			last := list[len(list)-1]
			require.NoError(t, events.DeleteMsg(t.Context(), last.Seq))
			require.NoError(t, w.stop())
			w = startWhole(t, w.dir, func(c *config.Config) { c.Gateway, c.Durability = config.GatewaySimulated, durability })
			w.must("service", "refresh", "web")
			w.shows(`"`+last.ID+`"`, "service", "events", "web", "-o", "json") // the value still had it
		})
	}
}
