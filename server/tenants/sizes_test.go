package tenants_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/tenants"
)

// What somebody has set of a size holds for sessions that are planned later, also after the server has started again; the configuration says the rest.
func TestSizesAreACatalogueThatTheConfigurationSeeds(t *testing.T) {
	t.Parallel()
	w := setup(t, 5, "planned", "late")
	spare := w.Config.Tenants.Servers[0]
	spare.Name, spare.Region, spare.Sizes = "t2", "eu", []string{"large"}
	w.Config.Tenants.Servers = append(w.Config.Tenants.Servers, spare)
	w.Start()
	sizes := func() map[string]map[string]any {
		all := map[string]map[string]any{}
		for _, v := range w.OK("GET", "/v1/tenant-sizes", "")["items"].([]any) {
			item := v.(map[string]any)
			all[item["name"].(string)] = item
		}
		return all
	}
	all := sizes()
	require.Len(t, all, 2)
	require.Equal(t, map[string]any{"default": []any{"t1"}}, all["small"]["regions"])
	require.Equal(t, map[string]any{"eu": []any{"t2"}}, all["large"]["regions"])

	w.OK("POST", path("planned", "move")+"/request", `{"approval":true}`)
	data := w.until("planned", "move", "it has a plan", func(_ string, data map[string]any) bool { return data["phase"] == "waiting_approval" })
	plan := data["plan"].(map[string]any)
	require.Equal(t, []any{"t1", all["small"]["revision"]}, []any{plan["server"], plan["catalogueRevision"]})

	status, v := w.Do("PUT", "/v1/tenant-sizes/small", `{"regions":{"default":["t1","t3"]}}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "%v", v)
	require.Contains(t, v["detail"], `no server "t3"`)
	set := w.OK("PUT", "/v1/tenant-sizes/small", `{"regions":{}}`)
	require.Equal(t, true, set["set"])
	require.Greater(t, set["revision"], all["small"]["revision"])
	refused := func(id string) {
		status, v := w.Do("POST", path("late", id)+"/request", `{}`)
		require.Equal(t, http.StatusUnprocessableEntity, status, "%v", v)
		require.Contains(t, v["detail"], "takes the region default and the size small")
	}
	refused("move")

	w.Kill()
	w.Config.Tenants.Servers[1].Sizes = []string{"large", config.DefaultSize}
	w.Start()
	all = sizes()
	require.Equal(t, set, all["small"], "nobody but an admin changes what an admin has set")
	refused("again")
	w.OK("POST", path("planned", "move")+"/approve", `{}`)
	w.ends("planned", "move", "ready")
	databasetest.Same(t, w.source, w.target("planned"), "planned")

	reset := w.OK("PUT", "/v1/tenant-sizes/small", `{"reset":true}`)
	require.Equal(t, []any{false, map[string]any{"default": []any{"t1"}, "eu": []any{"t2"}}}, []any{reset["set"], reset["regions"]})
	w.OK("POST", path("late", "move")+"/request", `{}`)
	w.ends("late", "move", "ready")
}

// A size that neither the configuration has nor anybody has set is none.
func TestASizeThatIsResetIsWhatTheConfigurationSays(t *testing.T) {
	t.Parallel()
	w := setup(t, 1)
	w.Start()
	refused := func(size, body string, want int, why string) {
		t.Helper()
		status, v := w.Do("PUT", "/v1/tenant-sizes/"+size, body)
		require.Equal(t, want, status, "%v", v)
		require.Contains(t, v["detail"], why)
	}
	refused("huge", `{"reset":true}`, http.StatusNotFound, "there is no size huge")
	refused("huge", `{"regions":{"default":["t1","t1"]}}`, http.StatusUnprocessableEntity, "")
	names := func() (names []string) {
		for _, v := range w.OK("GET", "/v1/tenant-sizes", "")["items"].([]any) {
			names = append(names, v.(map[string]any)["name"].(string))
		}
		return names
	}
	require.Equal(t, []string{"small"}, names())
	w.OK("PUT", "/v1/tenant-sizes/huge", `{"regions":{"default":["t1"]}}`)
	require.Equal(t, []string{"huge", "small"}, names())
	w.OK("PUT", "/v1/tenant-sizes/huge", `{"reset":true}`)
	require.Equal(t, []string{"small"}, names())
	refused("huge", `{"reset":true}`, http.StatusNotFound, "there is no size huge")
	w.OK("PUT", "/v1/tenant-sizes/huge", `{"regions":{"default":["t1"]}}`)
}

func TestASizeIsSetAtTheRevisionThatWasSeen(t *testing.T) {
	t.Parallel()
	w := setup(t, 1)
	w.Start()
	put := func(match string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.URL+"/v1/tenant-sizes/huge", strings.NewReader(`{"regions":{"default":["t1"]}}`))
		require.NoError(t, err)
		req.Header.Set("If-Match", match)
		req.Header.Set("Content-Type", "application/json")
		a, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, a.Body.Close())
		return a.StatusCode
	}
	require.Equal(t, http.StatusOK, put(`"0"`), "there was none")
	require.Equal(t, http.StatusPreconditionFailed, put(`"0"`))
}

// What was not planned for any server needs none to end: also when its size has none any more, it gives its tenant free.
func TestAnUndoNeedsNoServerThatTheSizeLacks(t *testing.T) {
	t.Parallel()
	w := setup(t, 1)
	w.Start()
	w.OK("POST", path("misspelt", "move")+"/request", `{}`)
	w.ends("misspelt", "move", "failed")
	w.OK("PUT", "/v1/tenant-sizes/small", `{"regions":{}}`)
	w.OK("POST", path("misspelt", "move")+"/rollback", `{}`)
	w.until("misspelt", "move", "it is rolled back or stuck", func(state string, data map[string]any) bool {
		require.NotEqual(t, "rollback_stuck", data["phase"], "%v", data["undone"])
		return state == "rolled_back"
	})
}

// A value that cannot be read is as if nobody had set it.
func TestASizeThatCannotBeReadIsThatOfTheConfiguration(t *testing.T) {
	t.Parallel()
	w := setup(t, 1, "unread")
	w.Start()
	js, err := jetstream.New(w.connect())
	require.NoError(t, err)
	bucket, err := js.KeyValue(t.Context(), tenants.CatalogueBucket)
	require.NoError(t, err)
	_, err = bucket.Put(t.Context(), "spec.db.small", []byte(`{"regions":7}`))
	require.NoError(t, err)
	w.OK("POST", path("unread", "move")+"/request", `{"approval":true}`)
	data := w.until("unread", "move", "it has a plan", func(_ string, data map[string]any) bool { return data["phase"] == "waiting_approval" })
	require.Equal(t, "t1", data["plan"].(map[string]any)["server"])
}
