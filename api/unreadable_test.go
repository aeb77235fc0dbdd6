package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/kv/index"
)

// The NATS server answers "no message found" for a message that its disk does not give, too. Only what it knows not to
// have is not there.
func TestWhatCannotBeReadIsNotMissing(t *testing.T) {
	b := setup(t, func(o *api.Options) {
		sub, err := o.NC.Subscribe("FAULT.>", func(m *nats.Msg) {
			request := strings.TrimPrefix(m.Subject, "FAULT.")
			if strings.HasPrefix(request, "STREAM.MSG.GET.KV_gadgets") {
				_ = m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
				return
			}
			_ = o.NC.PublishRequest("$JS.API."+request, m.Reply, m.Data)
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = sub.Unsubscribe() })
		o.JS, err = jetstream.NewWithAPIPrefix(o.NC, "FAULT")
		require.NoError(t, err)
	})
	b.ready("x")
	_, err := b.js.Publish(t.Context(), "$KV.gadgets_sizes.default.x", []byte(`{"value":[1]}`))
	require.NoError(t, err)
	for _, path := range []string{"/v1/gadgets/x", "/v1/gadgets/x/sizes"} {
		p := b.get(path)
		p.problem(t, 503, "unavailable")
		require.NotEmpty(t, p.Header.Get("Retry-After"), path)
	}
	b.post("/v1/gadgets/x/resize?dryRun", `{"size":1}`).problem(t, 503, "unavailable")
	require.Equal(t, 200, b.get("/v1/gadgets/x/events").StatusCode, "the events can be read")

	b.get("/v1/gadgets/none").problem(t, 404, "not-found")
	b.get("/v1/gadgets/none/sizes").problem(t, 404, "not-found")
	b.get("/v1/gadgets/none/events").problem(t, 404, "not-found")
	require.Equal(t, 200, b.post("/v1/gadgets/new/create?dryRun", `{"spec":{"name":"a"}}`).StatusCode)
}

// Before the index was read there is no list, which would lack what there is.
func TestNoListBeforeTheIndexIsThere(t *testing.T) {
	b := setup(t, func(o *api.Options) {
		o.Indexes.Set("gadget", index.New(o.JS, "gadgets", func(_ string, value []byte) (index.Meta, error) { return index.DescribeJSON(value) }, index.Options{}))
	})
	for _, path := range []string{"/v1/gadgets", "/v1/machines/gadget/counts", "/v1/counts"} {
		a := b.get(path)
		a.problem(t, 503, "unavailable")
		require.NotEmpty(t, a.Header.Get("Retry-After"))
	}
	require.Equal(t, 200, b.get("/v1/gadgets/x/parts").StatusCode, "another index")
	require.NoError(t, b.server.Micro(context.Background()))
	answer, err := b.nc.Request("instar.api.list.gadget", nil, soon)
	require.NoError(t, err)
	require.Equal(t, "503", answer.Header.Get("Nats-Service-Error-Code"))
}
