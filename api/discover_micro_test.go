package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
)

func TestDiscoverOverNATS(t *testing.T) {
	r := discovering(t)
	require.NoError(t, r.server.Micro(t.Context()))
	r.healthy("web", "a", `,"zone":"north"`)
	revision := r.healthy("web", "b", "")
	answer := func(m *nats.Msg) map[string]any {
		require.Empty(t, m.Header.Get(micro.ErrorCodeHeader), string(m.Data))
		var v map[string]any
		require.NoError(t, json.Unmarshal(m.Data, &v))
		return v
	}
	all := answer(r.ask("instar.api.discover.default.web", fmt.Sprintf(`{"minRevision":%d}`, revision)))
	require.Equal(t, r.get("/v1/discover/web").json(t), all, "the same as over HTTP")
	pending := r.register("web", "c", "")
	asked := r.nc.NewInbox()
	written, err := r.nc.SubscribeSync(asked)
	require.NoError(t, err)
	require.NoError(t, r.nc.PublishRequest("instar.api.discover.default.web", asked, fmt.Appendf(nil, `{"minRevision":%.0f}`, pending["revision"])))
	r.metric(`instar_limit_held{limit="waits"} 1`)
	r.tell("web", "c", instance.ReportPersisted, `{}`)
	m, err := written.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Contains(t, listed(answer(m)["instances"]), "c", "who has registered reads that")
	require.Equal(t, []string{"a"}, listed(answer(r.ask("instar.api.discover.default.web", `{"zone":"north","choose":1,"key":"k"}`))["instances"]))
	require.Empty(t, answer(r.ask("instar.api.discover.default.nobody", ""))["instances"])
	for body, code := range map[string]string{`{`: "400", `{"choose":-1}`: "422", `{"key":"k"}`: "422", `{"Choose":1}`: "400", `{"near":"north"}`: "400"} {
		require.Equal(t, code, r.ask("instar.api.discover.default.web", body).Header.Get(micro.ErrorCodeHeader), body)
	}
	require.Equal(t, "422", r.ask("instar.api.discover.Default.web", "").Header.Get(micro.ErrorCodeHeader))

	large := fmt.Sprintf(`{"schema":1,"machine":"instance","namespace":"default","parent":"large","id":"%%s","state":"active.healthy","version":1,"generation":1,"since":"2026-01-01T00:00:00Z",
		"data":{"nodeAddress":"10.0.0.1:80","weight":100,"payload":{"k":%q}}}`, strings.Repeat("x", 100_000))
	for i := range 12 {
		id := fmt.Sprintf("l%d", i)
		ack, err := r.js.Publish(t.Context(), "$KV.instances.default.large."+id, fmt.Appendf(nil, large, id))
		require.NoError(t, err)
		revision = ack.Sequence
	}
	m = r.ask("instar.api.discover.default.large", fmt.Sprintf(`{"minRevision":%d}`, revision))
	require.Equal(t, "413", m.Header.Get(micro.ErrorCodeHeader), "an answer that NATS does not pass on is not silence")
	require.Contains(t, string(m.Data), `"code":"answer-too-large"`)
	require.Len(t, answer(r.ask("instar.api.discover.default.large", `{"choose":3}`))["instances"], 3)

	var doc struct {
		Channels map[string]struct{ Address string }
	}
	require.NoError(t, json.Unmarshal(r.server.AsyncAPI(), &doc))
	for name, address := range map[string]string{
		"api.discover": "instar.api.discover.{namespace}.{service}", "heartbeat": "instar.hb.{namespace}.{service}.{instanceId}",
		"acknowledgement": "instar.ack.{namespace}.{service}", "live": "instar.live.instances.{namespace}.{service}.{instanceId}",
	} {
		require.Equal(t, address, doc.Channels[name].Address)
	}
}
