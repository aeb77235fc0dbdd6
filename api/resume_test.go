package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A store that was restored, or has lost its end, and was written since, stands where a client has seen it stand, with other
// instances. Two stores are two such histories.
func TestAnIndexOfALostHistory(t *testing.T) {
	lost := discovering(t)
	lost.healthy("web", "a", "")
	lost.healthy("db", "x", "")
	t.Run("Now", func(t *testing.T) {
		now := discovering(t)
		now.healthy("web", "b", "")
		for i := range 3 {
			now.healthy("db", fmt.Sprint("x", i), "")
		}
		t.Run("Watch", func(t *testing.T) { lostWatch(t, lost, now) })
		t.Run("BlockingRead", func(t *testing.T) { lostRead(t, lost, now) })
		t.Run("EveryWatch", func(t *testing.T) { lostItems(t, lost, now) })
	})
}

func lostWatch(t *testing.T, lost, now *registry) {
	e, _ := lost.watch("/v1/discover/web/watch").named("snapshot")
	_, snap := now.watch("/v1/discover/web/watch", "Last-Event-ID", e.id).named("snapshot")
	require.Equal(t, []string{"b"}, listed(snap["instances"]))
	require.Equal(t, e.id, lost.watch("/v1/discover/web/watch", "Last-Event-ID", e.id).idOnly(), "nothing else is said")
}

func lostRead(t *testing.T, lost, now *registry) {
	had := lost.get("/v1/discover/web")
	tag, index := had.Header.Get("Etag"), had.Header.Get("X-Instar-Index")
	require.NotEmpty(t, tag)
	begun := time.Now()
	r := now.get("/v1/discover/web?wait=1m&index="+index, "If-None-Match", tag)
	require.Less(t, time.Since(begun), soon)
	require.Equal(t, []string{"b"}, found(t, r))
	r = now.get("/v1/discover/web?wait=200ms&index="+index, "If-None-Match", r.Header.Get("Etag"))
	require.Equal(t, 304, r.StatusCode)
	require.NotEmpty(t, r.Header.Get("X-Instar-Index"))
	r = now.get("/v1/discover/web?zone=mars&wait=1m&index="+index, "If-None-Match", tag)
	require.Empty(t, found(t, r), "of what a filter leaves, too")
	require.Equal(t, 200, now.get("/v1/discover/web?choose=1", "If-None-Match", tag).StatusCode)
}

func lostItems(t *testing.T, lost, now *registry) {
	w := lost.watch("/v1/watch?machine=instance")
	w.named("snapshot")
	lost.healthy("db", "y", "")
	id := w.idOnly()
	other := now.watch("/v1/watch?machine=instance", "Last-Event-ID", id)
	_, reset := other.named("reset")
	require.NotEmpty(t, reset["reason"])
	_, snap := other.named("snapshot")
	require.Len(t, snap["items"], 4)
	_, snap = lost.watch("/v1/watch?machine=instance", "Last-Event-ID", id).named("snapshot")
	require.Empty(t, snap["items"], "it has them all")
	lost.healthy("web", "c", "")
	_, snap = lost.watch("/v1/watch?machine=instance", "Last-Event-ID", id).named("snapshot")
	require.Len(t, snap["items"], 1)
}

// Where all that a client was told of last was written again, nothing proves that it had the rest: it begins anew.
func TestAWatchBeginsAnewWhereNothingIsAsItWas(t *testing.T) {
	r := discovering(t)
	w := r.watch("/v1/watch?machine=instance")
	w.named("snapshot")
	for i := range 7 {
		r.healthy("web", fmt.Sprint("i", i), "")
	}
	id := w.idOnly()
	for i := 2; i < 7; i++ {
		_, snap := r.watch("/v1/watch?machine=instance", "Last-Event-ID", id).named("snapshot")
		require.Len(t, snap["items"], i-2)
		require.Equal(t, 200, r.post(fmt.Sprintf("/v1/services/web/instances/i%d/pin", i), `{"weight":7}`).StatusCode)
	}
	again := r.watch("/v1/watch?machine=instance", "Last-Event-ID", id)
	again.named("reset")
	_, snap := again.named("snapshot")
	require.Len(t, snap["items"], 7)
	one := r.watch("/v1/services/web/instances/i2/watch")
	e, _ := one.named("snapshot")
	require.Equal(t, 200, r.post("/v1/services/web/instances/i2/pin", `{"weight":8}`).StatusCode)
	require.Equal(t, "snapshot", r.watch("/v1/services/web/instances/i2/watch", "Last-Event-ID", e.id).next().name, "one is sent whole in any case")
	for _, bad := range []string{"x", "4-x", "4-a.b.c-", "4-1.1-1.1-1.1-1.1-1.1-1.1"} {
		r.get("/v1/watch?machine=instance", "Last-Event-ID", bad).problem(t, 422, "validation")
	}
}
