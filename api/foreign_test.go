package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
)

// foreign is what a token of one namespace is answered by the operations that take no namespace: by the name of what is in
// another one it is not found, and belongs to no namespace what is answered or not allowed. The path is that of the document.
var foreign = map[string]int{
	"POST /v1/batches": 404, "GET /v1/operations/{operation}": 404, "POST /v1/operations/{operation}/cancel": 404,
	"GET /v1/dead-letters": 200, "GET /v1/dead-letters/{seq}": 404, "POST /v1/dead-letters/{seq}/redrive": 404, "POST /v1/dead-letters/redrive": 200, "POST /v1/dead-letters/drop": 200, "GET /v1/dead-letters/settled": 200,
	"GET /v1/outbox": 200, "POST /v1/outbox/{source}/redrive": 404, "POST /v1/outbox/{source}/discard": 404,
	"GET /v1/streams/{stream}/messages": 403, "GET /v1/nodes": 403, "GET /v1/workers": 403, "GET /v1/counts": 200, "POST /v1/nodes/{name}/cordon": 403, "POST /v1/nodes/{name}/uncordon": 403, "POST /v1/nodes/{name}/drain": 403,
	"GET /v1/backup": 403, "GET /v1/machines": 200, "GET /v1/machines/{machine}": 200, "GET /v1/machines/{machine}/diagram": 200, "GET /v1/machines/{machine}/commands/{command}": 200, "GET /v1/activity": 403, "GET /v1/machines/{machine}/stays": 403, "GET /metrics": 403,
}

// Every operation of the document is asked by a token of one namespace for what is in another one: it gets 404, whether that is
// there or not, and sees nothing of it (OWASP API1).
func TestForeignNamespace(t *testing.T) {
	r := discovering(t, func(o *api.Options) {
		o.Nodes, o.Outbox = &nodes{}, &outboxes{}
		o.Backup = func(_ context.Context, w io.Writer) error { _, err := io.WriteString(w, "hush"); return err }
	})
	r.ready("x")
	r.post("/v1/gadgets/x/parts/x/mount", `{}`)
	require.Equal(t, 202, r.post("/v1/gadgets/hush/create", `{"spec":{"name":"hush"}}`, "Idempotency-Key", "hush", "Prefer", "respond-async").StatusCode)
	r.healthy("hush", "hush", `,"payload":{"secret":"hush"}`)
	r.letters.all = append(r.letters.all, letter(1, "default.hush", `{"secret":"hush"}`), letter(2, "default.hush", ""))
	require.Equal(t, 200, r.post("/v1/dead-letters/drop", `{"seqs":[2],"reason":"hush"}`).StatusCode)
	path := strings.NewReplacer("{id}", "x", "{gadget}", "x", "{service}", "hush", "{instanceId}", "hush", "{watcher}", "w", "{operation}", "gadget.default.hush.hush",
		"{seq}", "1", "{name}", "one", "{source}", "orders", "{machine}", "gadget", "{command}", "create", "{stream}", "events")
	body := map[string]string{
		"POST /v1/register": `{"serviceName":"hush","instanceId":"hush","nodeAddress":"10.0.0.9:80"}`, "POST /v1/dead-letters/redrive": `{"seqs":[1]}`, "POST /v1/dead-letters/drop": `{"seqs":[1],"reason":"x"}`,
		"POST /v1/batches": `{"machine":"gadget","command":"touch","filter":{"namespace":"default"}}`,
		"POST /v1/services/{service}/watchers/{watcher}": `{"index":1}`,
	}
	body["POST /v1/outbox/{source}/redrive"], body["POST /v1/outbox/{source}/discard"] = `{"all":true}`, `{"all":true}`
	doc, err := openapi3.NewLoader().LoadFromData(r.server.OpenAPI())
	require.NoError(t, err)
	require.Equal(t, 200, r.get("/v1/operations/gadget.default.hush.hush", "Prefer", "wait=5").StatusCode)
	taken, asked := r.stored(), 0
	for _, op := range r.server.Operations() {
		item := doc.Paths.Find(op.Path)
		if op.Role == "" || item == nil {
			continue // documents and health, which are everybody's
		}
		asked++
		at := op.Method + " " + op.Path
		judge := func(query string, want int) {
			a := r.do(op.Method, path.Replace(op.Path)+query, body[at], "Authorization", "Bearer tenant-token")
			require.Equal(t, want, a.StatusCode, "%s%s: %s", at, query, a.body)
			require.NotContains(t, strings.ReplaceAll(string(a.body), path.Replace(op.Path), ""), "hush", at)
		}
		if item.GetOperation(op.Method).Parameters.GetByInAndName("query", "namespace") == nil {
			want, judged := foreign[at]
			require.True(t, judged, "%s takes no namespace: say in this test what a token of one sees there", at)
			judge("", want)
			continue
		}
		for _, namespace := range []string{"default", "nobody"} {
			judge("?namespace="+namespace, http.StatusNotFound)
		}
		if op.Method == http.MethodGet && !strings.Contains(op.Path, "{") && !strings.HasSuffix(op.Path, "/watch") {
			judge("?namespace=*", http.StatusOK) // all that it may see
		}
	}
	require.Greater(t, asked, 50)
	health := r.get("/readyz?verbose", "Authorization", "Bearer tenant-token").json(t)
	require.NotContains(t, health, "indexes", "they count what all namespaces have")
	require.NotContains(t, health, "version")
	require.Contains(t, r.get("/readyz?verbose", "Authorization", "Bearer read-token").json(t), "indexes")
	require.Equal(t, taken, r.stored(), "a command was stored")
	require.Empty(t, r.letters.redriven)
	require.Equal(t, 200, r.post("/v1/gadgets/mine/create", `{"spec":{"name":"a"}}`, "Authorization", "Bearer tenant-token").StatusCode)
	require.Equal(t, "acme", r.get("/v1/gadgets/mine", "Authorization", "Bearer tenant-token").json(t)["namespace"])
	require.Equal(t, "tenant", r.get("/v1/gadgets/mine/events?namespace=acme").json(t)["items"].([]any)[0].(map[string]any)["actor"])
}
