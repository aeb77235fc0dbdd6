package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/embedded"
)

// All processes of the registry are away while the NATS server lives on, and the timers in it fire. An instance that is
// there when they are back stays, one that is not is deregistered then, and a maintenance has ended meanwhile.
func TestAnOutageOfTheRegistryDeregistersNothingThatLives(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Open: true, Profile: embedded.OS})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Shutdown(context.Background())) })
	nc, err := nats.Connect(server.ClientURL())
	require.NoError(t, err)
	defer nc.Close()
	dir := t.TempDir()
	attach := func(c *config.Config) {
		c.Gateway, c.NATS.URL, c.NATS.Listen = config.GatewaySimulated, server.ClientURL(), ""
	}
	w := startWhole(t, dir, attach)
	require.Contains(t, body(t, w.url+"/readyz?verbose"), "asks nobody who they are")
	for id, body := range map[string]string{
		"lives": `{"check":{"type":"ttl","ttl":"1s","grace":"500ms"},"policy":{"deregisterCriticalAfter":"3s"}}`,
		"dead":  `{"check":{"type":"ttl","ttl":"1s","grace":"500ms"},"policy":{"deregisterCriticalAfter":"3s"}}`,
		"kept":  `{}`,
	} {
		body = `{"serviceName":"web","instanceId":"` + id + `","nodeAddress":"127.0.0.1:9",` + strings.TrimPrefix(body, "{")
		resp, err := http.Post(w.url+"/v1/register", "application/json", strings.NewReader(strings.ReplaceAll(body, ",}", "}")))
		require.NoError(t, err)
		said, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.Equal(t, http.StatusAccepted, resp.StatusCode, string(said))
	}
	state := func(id string) (s struct {
		State string
		Data  struct {
			Overdue     time.Time
			Maintenance *struct{ Until time.Time }
		}
	},
	) {
		resp, err := http.Get(w.url + "/v1/services/web/instances/" + id)
		if err != nil {
			return s
		}
		defer resp.Body.Close()
		_ = json.NewDecoder(resp.Body).Decode(&s)
		return s
	}
	becomes := func(id, want string) {
		t.Helper()
		require.Eventually(t, func() bool { return state(id).State == want }, 20*time.Second, 10*time.Millisecond, "%s should become %s", id, want)
	}
	becomes("kept", "active.healthy")
	w.must("instance", "maintenance", "web/kept", "--enabled", "--for", "4s")
	becomes("lives", "active.unhealthy")
	becomes("dead", "active.unhealthy")
	require.NoError(t, w.stop())

	js, err := jetstream.New(nc)
	require.NoError(t, err)
	commands, err := js.Stream(t.Context(), "COMMANDS")
	require.NoError(t, err)
	require.Eventually(t, func() bool { // all three timers have fired, on time, and wait to be taken
		info, err := commands.Info(t.Context(), jetstream.WithSubjectFilter("instar.in.*.instance.default.web.*.elapsed"))
		return err == nil && len(info.State.Subjects) == 3
	}, 20*time.Second, 50*time.Millisecond)

	w = startWhole(t, dir, attach)
	end := time.After(20 * time.Second)
	beat := time.NewTicker(200 * time.Millisecond)
	defer beat.Stop()
	for state("dead").State != "deregistered" {
		select {
		case <-beat.C:
			require.NoError(t, nc.Publish("instar.hb.default.web.lives", nil))
		case <-end:
			t.Fatalf("what is dead is %s", state("dead").State)
		}
	}
	lives := state("lives")
	require.Equal(t, "active.healthy", lives.State)
	require.True(t, lives.Data.Overdue.IsZero())
	require.Nil(t, state("kept").Data.Maintenance)
	require.NotContains(t, w.must("instance", "events", "web/lives"), "deregistered")
}
