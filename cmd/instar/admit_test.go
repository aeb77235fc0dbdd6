package main

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
)

// A check that could never be carried out is refused at each door, with the reason, and leaves nothing behind.
func TestForbiddenChecksAreRefusedAtTheDoor(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway = config.GatewaySimulated })
	nc, err := nats.Connect(w.nats)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	own, err := url.Parse(w.url)
	require.NoError(t, err)
	for reason, rest := range map[string]string{
		"169.254.169.254:80 may not be connected to": `"nodeAddress":"169.254.169.254:80","check":{"type":"http"}`,
		"it is this program's own":                   `"nodeAddress":"` + own.Host + `","check":{"type":"tcp"}`,
		"checks of type script are not enabled":      `"nodeAddress":"10.0.0.1:80","check":{"type":"script","command":["true"]}`,
		"checks with a body are not enabled":         `"nodeAddress":"10.0.0.1:80","check":{"type":"http","body":"x"}`,
		"checks with match are not enabled":          `"nodeAddress":"10.0.0.1:80","check":{"type":"http","match":"^a"}`,
		"missing closing ]":                          `"nodeAddress":"10.0.0.1:80","check":{"type":"http","match":"["}`,
		`address "10.0.0.1" is not host:port`:        `"nodeAddress":"10.0.0.1","check":{"type":"tcp"}`,
	} {
		for path, body := range map[string]string{
			"/v1/register": `{"serviceName":"web","instanceId":"x",` + rest + `}`, "/v1/services/web/instances/x/register": `{` + rest + `}`, "/v1/services/web/instances/x/register?dryRun": `{` + rest + `}`,
		} {
			status, p := w.call("POST", path, body)
			require.Equal(t, 422, status, "%s: %s: %v", path, reason, p)
			require.Equal(t, "validation", p["code"])
			require.Contains(t, p["detail"], reason)
		}
		m, err := nc.Request("instar.api.cmd.instance.default.web.x.register", []byte(`{`+rest+`}`), 10*time.Second)
		require.NoError(t, err)
		require.Contains(t, string(m.Data), "validation", reason)
		require.True(t, json.Valid(m.Data))
	}
	status, _ := w.call("GET", "/v1/services/web/instances/x", "")
	require.Equal(t, 404, status)
	status, _ = w.call("POST", "/v1/register", `{"serviceName":"web","nodeAddress":"`+own.Host+`","check":{"type":"ttl"}}`)
	require.Equal(t, 202, status, "what nobody probes may be anywhere")
}
