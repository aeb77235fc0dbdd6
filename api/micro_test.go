package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// ask makes a request to the micro service; headers come in pairs.
func (b *bundle) ask(subject, body string, headers ...string) *nats.Msg {
	b.t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
	for i := 0; i < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	res, err := b.nc.RequestMsg(m, soon)
	require.NoError(b.t, err)
	return res
}

func TestMicro(t *testing.T) {
	b := setup(t, func(o *api.Options) {
		o.Admit = func(c publish.Command) error {
			if strings.Contains(string(c.Body), `"panic"`) {
				panic("another secret dsn")
			}
			return nil
		}
	})
	require.NoError(t, b.server.Micro(t.Context()))
	require.Error(t, b.server.Micro(t.Context()), "only once")
	answerOf := func(m *nats.Msg) (a machines.Answer) {
		require.Empty(t, m.Header.Get(micro.ErrorCodeHeader), string(m.Data))
		require.NoError(t, json.Unmarshal(m.Data, &a))
		return a
	}
	t.Run("IsFound", func(t *testing.T) {
		m, err := b.nc.Request("$SRV.INFO.instar", nil, soon)
		require.NoError(t, err)
		var info micro.Info
		require.NoError(t, json.Unmarshal(m.Data, &info))
		require.Equal(t, "1.2.3", info.Version)
		require.Len(t, info.Endpoints, 3)
		require.Equal(t, "gadget,part", info.Metadata["machines"])
		require.NotEmpty(t, info.Endpoints[0].Metadata["request"])
	})
	t.Run("TheEngineAnswers", func(t *testing.T) {
		a := answerOf(b.ask("instar.api.cmd.gadget.default.n.create", `{"spec":{"name":"x"}}`, "Nats-Msg-Id", "k", "Instar-Actor", "script", "Nats-Rollup", "all"))
		require.Equal(t, machines.Applied, a.Outcome)
		require.Equal(t, "k", a.CommandID)
		again := b.ask("instar.api.cmd.gadget.default.n.create", `{"spec":{"name":"x"}}`, "Nats-Msg-Id", "k")
		require.True(t, streams.Replayed(again))
		require.Equal(t, a, answerOf(again), "the answer of then")
		a = answerOf(b.ask("instar.api.cmd.gadget.default.n.create", `{"spec":{"name":"x"}}`))
		require.Equal(t, machines.CodeExists, a.Refusal.Code)
		require.Equal(t, "script", b.get("/v1/gadgets/n/events").json(t)["items"].([]any)[0].(map[string]any)["actor"])
		require.Equal(t, machines.Applied, answerOf(b.ask("instar.api.cmd.part.default.n.wheel.mount", `{}`)).Outcome)
	})
	t.Run("Reads", func(t *testing.T) {
		var e map[string]any
		require.NoError(t, json.Unmarshal(b.ask("instar.api.get.gadget.default.n", "").Data, &e))
		require.Equal(t, "n", e["id"])
		require.NotContains(t, e, "outbox")
		require.Eventually(t, func() bool {
			var page map[string]any
			return json.Unmarshal(b.ask("instar.api.list.gadget", `{"limit":5}`).Data, &page) == nil && len(page["items"].([]any)) == 1
		}, soon, 10*time.Millisecond)
		b.ready("small")
		require.NoError(t, json.Unmarshal(b.ask("instar.api.get.gadget.default.small", "").Data, &e))
		require.Contains(t, e["forbiddenCommands"], "shrink")
	})
	t.Run("ErrorsAreOfTheService", func(t *testing.T) {
		before := b.stored()
		for _, c := range []struct{ subject, body, code string }{
			{"instar.api.cmd.gadget.default.n.explode", "", "404"},
			{"instar.api.cmd.gadget.default.n.made", "", "404"},
			{"instar.api.cmd.gadget.default.n.purge", "", "404"},
			{"instar.api.cmd.thing.default.n.create", "", "404"},
			{"instar.api.cmd.gadget.default.UPPER.create", "", "422"},
			{"instar.api.cmd.gadget.n.create", "", "422"},
			{"instar.api.cmd.gadget.default.p.n.create", "", "422"},
			{"instar.api.cmd.part.default.n.mount", "", "422"},
			{"instar.api.cmd.x", "", "404"},
			{"instar.api.cmd.gadget", "", "422"},
			{"instar.api.get.gadget.default.nobody", "", "404"},
			{"instar.api.get.gadget.n", "", "422"},
			{"instar.api.get.thing.default.n", "", "404"},
			{"instar.api.list.thing", "", "404"},
			{"instar.api.list.gadget", "{", "400"},
			{"instar.api.list.gadget", `{"label":"a b=c"}`, "422"},
			{"instar.api.list.gadget", `{"cursor":"x"}`, "400"},
			{"instar.api.list.gadget", `{"namespace":"a.b"}`, "422"},
		} {
			m := b.ask(c.subject, c.body)
			require.Equal(t, c.code, m.Header.Get(micro.ErrorCodeHeader), c.subject)
			require.NotEmpty(t, m.Header.Get(micro.ErrorHeader))
		}
		require.Equal(t, "422", b.ask("instar.api.cmd.gadget.default.n.touch", "", "Instar-Expect-Revision", "x").Header.Get(micro.ErrorCodeHeader))
		require.Equal(t, "422", b.ask("instar.api.cmd.gadget.default.n.touch", "", "Instar-Reason", "a\x1bb").Header.Get(micro.ErrorCodeHeader))
		require.Equal(t, before, b.stored())
	})
	t.Run("APanicIsOneAnswer", func(t *testing.T) {
		require.NoError(t, b.server.MicroPanic())
		for subject, body := range map[string]string{"instar.api.boom": "", "instar.api.boom.later": "", "instar.api.cmd.gadget.default.n.create": `{"spec":{"name":"panic"}}`} {
			before := panics.Counts()["nats"]
			m := b.ask(subject, body)
			require.Equal(t, "500", m.Header.Get(micro.ErrorCodeHeader), subject)
			require.Contains(t, string(m.Data), `"code":"internal"`)
			require.NotContains(t, string(m.Data), "secret")
			require.Greater(t, panics.Counts()["nats"], before)
		}
		require.Contains(t, b.log.String(), "secret dsn")
		require.Equal(t, "404", b.ask("instar.api.get.gadget.default.nobody", "").Header.Get(micro.ErrorCodeHeader), "others are answered")
	})
	t.Run("NotStoredIsUnavailable", func(t *testing.T) {
		b.app.Close()
		require.Equal(t, "503", b.ask("instar.api.cmd.gadget.default.n.touch", "").Header.Get(micro.ErrorCodeHeader))
	})
}

// A request names where its answer goes, and is answered with the rights of the control plane.
func TestMicroAnswersToInboxesOnly(t *testing.T) {
	b := setup(t)
	require.NoError(t, b.server.Micro(t.Context()))
	b.ask("instar.api.cmd.gadget.default.n.create", `{"spec":{"name":"x"}}`)
	bucket, err := b.js.KeyValue(t.Context(), "gadgets")
	require.NoError(t, err)
	tricks := []string{"get.gadget.default.n", "get.gadget.default.nobody", "list.gadget", "cmd.gadget.default.n.explode"}
	for _, tail := range tricks {
		require.NoError(t, b.nc.PublishRequest("instar.api."+tail, "$KV.gadgets.default.forged", nil))
	}
	require.Eventually(t, func() bool {
		m, err := b.nc.Request("$SRV.STATS.instar", nil, soon)
		var stats micro.Stats
		taken := 0
		if err == nil && json.Unmarshal(m.Data, &stats) == nil {
			for _, e := range stats.Endpoints {
				taken += e.NumRequests
			}
		}
		return taken == len(tricks)+1
	}, soon, 10*time.Millisecond)
	require.NoError(t, b.server.Close()) // which waits for those that are under way
	_, err = bucket.Get(t.Context(), "default.forged")
	require.ErrorIs(t, err, jetstream.ErrKeyNotFound)
}
