package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDryRun(t *testing.T) {
	b := setup(t)
	b.ready("x")
	before := b.stored()
	made := b.post("/v1/gadgets/new/create?dryRun", `{"spec":{"name":"lamp"}}`).json(t)
	require.Equal(t, "applied", made["outcome"])
	require.Empty(t, made["revision"], "there is none yet")
	require.NotEmpty(t, made["dryRun"].(map[string]any)["events"])
	b.get("/v1/gadgets/new").problem(t, 404, "not-found")

	now := b.get("/v1/gadgets/x").json(t)
	again := b.post("/v1/gadgets/x/purge?dryRun=true", "").json(t)
	require.Equal(t, now["state"], again["dryRun"].(map[string]any)["from"])
	require.Equal(t, now["version"].(float64)+1, again["version"])
	require.Equal(t, now["state"], b.get("/v1/gadgets/x").json(t)["state"])

	b.post("/v1/gadgets/x/create?dryRun", `{"spec":{"name":"lamp"}}`).problem(t, 409, "already-exists")
	b.post("/v1/gadgets/x/create?dryRun", `{"spec":{"name":1}}`).problem(t, 422, "validation")
	b.post("/v1/gadgets/ghost/touch?dryRun", "").problem(t, 404, "not-found")
	b.post("/v1/gadgets/x/touch?dryRun", "", "If-Match", `"99999"`).problem(t, 412, "precondition-failed")
	b.post("/v1/gadgets/x/purge?dryRun", "", "Authorization", "Bearer read-token").problem(t, 403, "forbidden")
	require.Equal(t, before, b.stored(), "something was stored")
}
