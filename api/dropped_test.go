package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/publish"
)

// What remains of an entity whose value was dropped can be read by its id, over HTTP and NATS, and so can its events.
func TestADroppedEntityIsReadable(t *testing.T) {
	b := setup(t)
	require.NoError(t, b.server.Micro(t.Context()))
	b.ready("a")
	b.post("/v1/gadgets/a/delete", "")
	stored, err := kv.Read(t.Context(), b.nc, "gadgets", "default.a")
	require.NoError(t, err)
	e, err := gadget.DecodeAt("default.a", stored.Data)
	require.NoError(t, err)
	require.Equal(t, "DELETED", e.State)
	before := b.get("/v1/gadgets/a").json(t)
	require.NotContains(t, before, "dropped")
	e.Labels, e.Outbox, e.Commands = nil, nil, nil // the data is not shown, even if it is there: the store knows what was dropped
	e.Replaced = stored.Sequence
	note, err := e.AppendJSON(nil)
	require.NoError(t, err)
	r := b.app.Append(t.Context(), []publish.Write{kv.DropAt("gadgets", "default.a", note, stored.Sequence, time.Hour)})[0]
	require.NoError(t, r.Err)
	after := b.get("/v1/gadgets/a")
	require.Equal(t, 200, after.StatusCode, string(after.body))
	require.Equal(t, fmt.Sprintf("%q", fmt.Sprint(r.Seq)), after.Header.Get("ETag"))
	want := map[string]any{"dropped": true, "revision": float64(r.Seq)}
	for _, kept := range []string{"machine", "namespace", "id", "state", "version", "generation", "since", "createdAt", "updatedAt", "allowedCommands", "links"} {
		want[kept] = before[kept]
	}
	require.Equal(t, want, after.json(t))
	require.Equal(t, 304, b.get("/v1/gadgets/a", "If-None-Match", after.Header.Get("ETag")).StatusCode)
	require.JSONEq(t, string(after.body), string(b.ask("instar.api.get.gadget.default.a", "").Data))
	for _, seen := range []string{fmt.Sprint(stored.Sequence), fmt.Sprint(r.Seq)} {
		require.Equal(t, 200, b.post("/v1/gadgets/a/create?dryRun", `{"spec":{"name":"a"}}`, "If-Match", fmt.Sprintf("%q", seen)).StatusCode, seen)
	}
	b.post("/v1/gadgets/a/create?dryRun", `{"spec":{"name":"a"}}`, "If-Match", `"1"`).problem(t, 412, machines.CodePrecondition)
	require.NotEmpty(t, b.get("/v1/gadgets/a/events").json(t)["items"])
	b.get("/v1/gadgets/a/sizes").problem(t, 404, machines.CodeNotFound)
	b.get("/v1/gadgets/nobody").problem(t, 404, machines.CodeNotFound)
	require.EqualValues(t, 0, len(b.get("/v1/gadgets").json(t)["items"].([]any)))
}
