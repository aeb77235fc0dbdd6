package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/testenv"
	"github.com/bcc94042/instar/server/config"
)

// call makes a request with a JSON body and returns the answer.
func (w *whole) call(method, path, body string) (status int, answer map[string]any) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, bytes.NewBufferString(body))
	require.NoError(w.t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	if len(raw) > 0 && raw[0] == '{' {
		require.NoError(w.t, json.Unmarshal(raw, &answer))
	}
	return res.StatusCode, answer
}

// found are the ids that discovery answers with, in one text.
func (w *whole) found(service, query string) string {
	w.t.Helper()
	_, answer := w.call("GET", "/v1/discover/"+service+query, "")
	var ids []string
	for _, one := range answer["instances"].([]any) {
		ids = append(ids, one.(map[string]any)["instanceId"].(string))
	}
	return strings.Join(ids, " ")
}

func (w *whole) finds(service, ids string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.found(service, "") == ids }, 20*time.Second, 20*time.Millisecond, "%q, not %q", w.found(service, ""), ids)
}

// From registration to the end, with real probes of a real server, heartbeats, DNS, the command line and a restart.
func TestLifeOfInstances(t *testing.T) {
	t.Parallel()
	var sick atomic.Bool
	backend := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer backend.Close()
	dir := t.TempDir()
	names := testenv.Address(t)
	change := func(c *config.Config) { c.Gateway, c.Discovery.DNS = config.GatewaySimulated, names }
	w := startWhole(t, dir, change)

	status, got := w.call("POST", "/v1/register", fmt.Sprintf(`{"serviceName":"web","instanceId":"probed","nodeAddress":%q,"zone":"north","check":{"type":"http","interval":"100ms","path":"/health"},"policy":{"rise":1,"fall":2}}`, backend.Listener.Addr()))
	require.Equal(t, 202, status, got)
	w.finds("web", "probed")
	nc, err := nats.Connect(w.nats)
	require.NoError(t, err)
	defer nc.Close()
	live, err := nc.SubscribeSync("instar.live.instances.default.web.>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())

	sick.Store(true)
	w.finds("web", "")
	m, err := live.NextMsg(5 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "instar.live.instances.default.web.probed", m.Subject)
	require.Contains(t, string(m.Data), `"active.unhealthy"`)
	sick.Store(false)
	w.finds("web", "probed")

	t.Run("ItsOwnListenersAreNotProbedBehindAName", func(t *testing.T) {
		address := strings.Replace(strings.TrimPrefix(w.url, "http://"), "127.0.0.1", "localhost", 1)
		status, got := w.call("POST", "/v1/register", fmt.Sprintf(`{"serviceName":"self","instanceId":"me","nodeAddress":%q,"check":{"type":"http","path":"/livez","interval":"100ms"}}`, address))
		require.Equal(t, 202, status, got)
		w.must("instance", "wait", "self/me", "--for", "state=active.unhealthy")
		w.shows("this program's own", "instance", "events", "self/me", "-o", "json")
	})
	t.Run("Heartbeats", func(t *testing.T) {
		_, got := w.call("POST", "/v1/register", `{"serviceName":"beats","instanceId":"b","nodeAddress":"10.0.0.1:80","check":{"type":"ttl","ttl":"1s"}}`)
		require.Equal(t, "b", got["instanceId"])
		for range 12 { // longer than its TTL and grace
			status, got := w.call("PUT", "/v1/services/beats/instances/b/heartbeat", `{"generation":1}`)
			require.Equal(t, 204, status, got)
			select {
			case <-time.After(150 * time.Millisecond):
			case <-t.Context().Done():
			}
		}
		require.Equal(t, "b", w.found("beats", ""))
		w.finds("beats", "")
	})
	t.Run("DNS", func(t *testing.T) {
		q := new(dns.Msg).SetQuestion("web.default.instar.", dns.TypeSRV)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		answer, err := dns.ExchangeContext(ctx, q, names)
		require.NoError(t, err)
		require.Len(t, answer.Answer, 1)
		require.Equal(t, "probed.web.default.instar.", answer.Answer[0].(*dns.SRV).Target)
	})
	t.Run("CommandLine", func(t *testing.T) {
		require.Regexp(t, `ID +ADDRESS +WEIGHT .*\nprobed +127\.0\.0\.1:\d+ +100 +north +- +active\.healthy`, w.must("discover", "web"))
		require.Equal(t, "instance/web/probed\n", w.must("discover", "web", "--zone", "north", "-o", "name"))
		require.Contains(t, w.must("discover", "web", "--zone", "south"), "web has no instances for traffic")
		require.Regexp(t, `web +1 +0 +1 +no`, w.must("discover"))
		require.Contains(t, w.must("discover", "web", "-o", "yaml"), "instanceId: probed")
		require.Contains(t, w.must("discover", "web", "--at", "1"), "As of")
		for _, bad := range [][]string{{"discover", "A.B"}, {"discover", "web", "--watch", "--choose", "1"}, {"discover", "web", "--at", "yesterday"}, {"discover", "web", "x"}} {
			code, out := w.cli(bad...)
			require.Equal(t, 2, code, out)
		}
	})
	_, before := w.call("GET", "/v1/discover/web", "")
	require.NoError(t, w.stop())
	w = startWhole(t, dir, change)
	_, after := w.call("GET", "/v1/discover/web", "")
	require.Equal(t, before["instances"], after["instances"], "a restart changes nothing of what is found")

	status, got = w.call("POST", "/v1/deregister/probed", "")
	require.Equal(t, 202, status)
	require.Equal(t, "it drains", got["message"])
	require.Empty(t, w.found("web", fmt.Sprintf("?minRevision=%.0f", got["revision"])))
	require.Equal(t, "probed", w.found("web", "?include=draining"))
	status, got = w.call("POST", "/v1/deregister/probed?force=true", "")
	require.Equal(t, 202, status)
	require.Equal(t, "it is deregistered", got["message"])
	require.Eventually(t, func() bool {
		status, _ = w.call("PUT", "/v1/services/web/instances/probed/heartbeat", "")
		return status == 410
	}, 5*time.Second, 10*time.Millisecond)
}
