package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
)

func listed(v any) (ids []string) {
	for _, one := range v.([]any) {
		ids = append(ids, one.(map[string]any)["instanceId"].(string))
	}
	return ids
}

func TestDiscoverWatch(t *testing.T) {
	r := discovering(t)
	first := r.healthy("web", "a", "")
	w := r.watch("/v1/discover/web/watch")
	require.Equal(t, "text/event-stream", w.res.Header.Get("Content-Type"))
	e, snap := w.named("snapshot")
	require.Regexp(t, fmt.Sprintf(`^%d-\w+$`, first), e.id)
	require.Equal(t, []string{"a"}, listed(snap["instances"]))
	require.EqualValues(t, first, snap["index"])

	second := r.healthy("web", "b", "")
	e, d := w.named("delta")
	require.Equal(t, []string{"b"}, listed(d["put"]))
	require.Empty(t, d["remove"])
	require.EqualValues(t, second, d["changed"])
	require.Regexp(t, fmt.Sprintf(`^%d-\w+$`, second), e.id)
	r.healthy("db", "x", "")
	r.post("/v1/deregister/a?force", "")
	e, d = w.named("delta")
	require.Equal(t, []any{"a"}, d["remove"])
	require.Empty(t, d["put"], "and not a word of db")
	at := e.id
	r.post("/v1/services/web/instances/b/pin", `{"weight":7}`)
	e, d = w.named("delta")
	require.EqualValues(t, 7, d["put"].([]any)[0].(map[string]any)["weight"])
	w.close()

	t.Run("ResumeWithoutAMissedChangeHasNoSnapshot", func(t *testing.T) {
		last := r.healthy("db", "y", "") // another service moves the index on
		w := r.watch("/v1/discover/web/watch", "Last-Event-ID", e.id)
		require.Regexp(t, fmt.Sprintf(`^%d-\w+$`, last), w.idOnly())
		r.healthy("web", "c", "")
		got, d := w.named("delta")
		require.Equal(t, []string{"c"}, listed(d["put"]))
		require.NotEqual(t, e.id, got.id)
	})
	t.Run("ResumeBehindAChangeHasASnapshot", func(t *testing.T) {
		_, snap := r.watch("/v1/discover/web/watch?after=" + at).named("snapshot")
		require.Equal(t, []string{"b", "c"}, listed(snap["instances"]))
	})
	t.Run("FilteredOutMovesTheIDOnly", func(t *testing.T) {
		w := r.watch("/v1/discover/web/watch?zone=mars")
		_, snap := w.named("snapshot")
		require.Empty(t, snap["instances"])
		revision := r.healthy("web", "d", `,"zone":"venus"`)
		for !strings.HasPrefix(w.idOnly(), fmt.Sprint(revision, "-")) { // each id is a step on the way
		}
		r.healthy("web", "e", `,"zone":"mars"`)
		_, d := w.named("delta")
		require.Equal(t, []string{"e"}, listed(d["put"]))
	})
	t.Run("DrainingIsSeenWhenAskedFor", func(t *testing.T) {
		w, plain := r.watch("/v1/discover/web/watch?include=draining"), r.watch("/v1/discover/web/watch")
		w.named("snapshot")
		plain.named("snapshot")
		r.post("/v1/deregister/b", "")
		_, d := w.named("delta")
		require.Equal(t, instance.Draining, d["put"].([]any)[0].(map[string]any)["state"])
		_, d = plain.named("delta")
		require.Equal(t, []any{"b"}, d["remove"])
	})
	t.Run("WeightsGrowByThemselves", func(t *testing.T) {
		w := r.watch("/v1/discover/warm/watch")
		w.named("snapshot")
		r.healthy("warm", "g", `,"policy":{"warmup":"4s"}`)
		_, d := w.named("delta")
		before := d["put"].([]any)[0].(map[string]any)["weight"].(float64)
		require.InDelta(t, 10, before, 5)
		_, d = w.named("delta")
		require.Greater(t, d["put"].([]any)[0].(map[string]any)["weight"], before, "nothing was written")
	})
	t.Run("Protection", func(t *testing.T) {
		w := r.watch("/v1/discover/web/watch")
		w.named("snapshot")
		_, err := r.js.Publish(t.Context(), "$KV.preservations.default.web.none", []byte(`{"state":"protected"}`))
		require.NoError(t, err)
		_, d := w.named("delta")
		require.Equal(t, true, d["protected"])
		require.Empty(t, d["put"])
	})
	t.Run("BadInput", func(t *testing.T) {
		r.get("/v1/discover/web/watch", "Last-Event-ID", "x").problem(t, 422, "validation")
		r.get("/v1/discover/web/watch?choose=1").problem(t, 422, "validation")
	})
	t.Run("CloseEndsIt", func(t *testing.T) {
		w := r.watch("/v1/discover/web/watch")
		w.named("snapshot")
		closed := make(chan error, 1)
		go func() { closed <- r.server.Close() }()
		w.named("end")
		select {
		case err := <-closed:
			require.NoError(t, err)
		case <-time.After(soon):
			t.Fatal("Close waits")
		}
	})
}
