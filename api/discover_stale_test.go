package api_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A node that hears nothing any more goes on answering, and says so at every door.
func TestStaleIsToldAtEveryDoor(t *testing.T) {
	r := discovering(t)
	require.NoError(t, r.server.Micro(t.Context()))
	at := r.healthy("web", "a", "")
	const header = "X-Instar-Stale-Seconds"
	doors := append(answersOfDiscovery(t, r), "/v1/discover/web?zone=x", "/v1/discover/web?index=1&wait=1ms", "/v1/discover?namespace=*",
		"/v1/instances", "/v1/services/web/instances", "/v1/machines/instance/counts", "/v1/counts", "/v1/gadgets")
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

// answersOfDiscovery are the paths of all reads that the document has about what is found, for the service web, but for
// watches and for heartbeats. Each of them says in the document that it may be stale.
func answersOfDiscovery(t *testing.T, r *catalogued) (paths []string) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			Tags      []string
			Responses map[string]struct {
				Headers map[string]any
				Content map[string]any
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.get("/openapi.json").body), &doc))
	for path, methods := range doc.Paths {
		ok := methods["get"].Responses["200"]
		if !slices.Contains(methods["get"].Tags, "discovery") || ok.Content["text/event-stream"] != nil {
			continue
		}
		if path == "/v1/services/{service}/heartbeats" { // whoever looks after the service answers, or nobody does: there is no old state
			continue
		}
		require.Contains(t, ok.Headers, "X-Instar-Stale-Seconds", path)
		paths = append(paths, strings.ReplaceAll(path, "{service}", "web"))
	}
	require.GreaterOrEqual(t, len(paths), 4)
	return paths
}
