package api_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A node that hears nothing any more goes on answering, and says so at every door.
func TestStaleIsToldAtEveryDoor(t *testing.T) {
	r := discovering(t)
	require.NoError(t, r.server.Micro(t.Context()))
	at := r.healthy("web", "a", "")
	const header = "X-Instar-Stale-Seconds"
	doors := []string{
		"/v1/discover/web", "/v1/discover/web?zone=x", "/v1/discover", "/v1/prometheus/targets",
		"/v1/instances", "/v1/services/web/instances", "/v1/machines/instance/counts", "/v1/gadgets",
	}
	for _, path := range doors {
		require.Empty(t, r.get(path).Header.Values(header), path)
	}
	require.NotContains(t, r.get("/v1/discover/web").json(t), "staleSeconds")
	w := r.watch("/v1/discover/web/watch")
	_, snap := w.named("snapshot")
	require.NotContains(t, snap, "staleSeconds")
	changes := r.watch("/v1/watch?machine=instance")
	require.Equal(t, "snapshot", changes.next().name)
	require.Equal(t, 200, r.get("/readyz").StatusCode)

	r.cut()
	_, told := w.named("stale")
	since := told["staleSeconds"].(float64)
	require.GreaterOrEqual(t, since, 5.0)
	for _, path := range doors {
		seconds, err := strconv.ParseFloat(r.get(path).Header.Get(header), 64)
		require.NoError(t, err, path)
		require.GreaterOrEqual(t, seconds, since, path)
	}
	for _, path := range []string{"/v1/instances", "/v1/machines/instance/counts"} {
		require.GreaterOrEqual(t, r.get(path).json(t)["staleSeconds"], since, path)
	}
	plan := r.post("/v1/batches", `{"machine":"instance","command":"cancel-drain","dryRun":true}`)
	require.Equal(t, 200, plan.StatusCode, string(plan.body))
	require.NotEmpty(t, plan.Header.Get(header))
	_, told = changes.named("stale")
	require.GreaterOrEqual(t, told["staleSeconds"], since, "with the next comment")
	require.Equal(t, "stale", r.watch("/v1/watch?machine=instance").next().name, "before anything else")
	down := r.get("/readyz")
	require.Equal(t, 503, down.StatusCode)
	require.Contains(t, string(down.body), "has heard nothing of its bucket")
	require.NoError(t, json.Unmarshal(r.ask("instar.api.list.instance", "{}").Data, &told))
	require.GreaterOrEqual(t, told["staleSeconds"], since)
	answer := r.get("/v1/discover/web")
	require.Equal(t, []string{"a"}, found(t, answer))
	require.GreaterOrEqual(t, answer.json(t)["staleSeconds"], since)
	var over map[string]any
	require.NoError(t, json.Unmarshal(r.ask("instar.api.discover.default.web", "").Data, &over))
	require.GreaterOrEqual(t, over["staleSeconds"], since)
	_, snap = r.watch("/v1/discover/web/watch").named("snapshot")
	require.GreaterOrEqual(t, snap["staleSeconds"], since)
	resumed := r.watch("/v1/discover/web/watch", "Last-Event-ID", strconv.FormatUint(at, 10))
	require.Equal(t, "stale", resumed.next().name, "before anything else")
}
