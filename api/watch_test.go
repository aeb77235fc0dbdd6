package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// sse is a watch under way.
type sse struct {
	t    testing.TB
	res  *http.Response
	in   *bufio.Scanner
	stop context.CancelFunc
}

type event struct{ id, name, data string }

func (b *bundle) watch(path string, headers ...string) *sse {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	req, err := http.NewRequestWithContext(ctx, "GET", b.web.URL+path, nil)
	require.NoError(b.t, err)
	req.Header.Set("Authorization", "Bearer "+b.token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := b.client.Do(req)
	require.NoError(b.t, err)
	w := &sse{b.t, res, bufio.NewScanner(res.Body), cancel}
	w.in.Buffer(nil, 1<<20)
	b.t.Cleanup(w.close)
	return w
}

func (w *sse) close() {
	w.stop()
	_ = w.res.Body.Close()
}

// next is the next event, also one that only moves the id.
func (w *sse) next() event {
	w.t.Helper()
	var e event
	for w.in.Scan() {
		name, value, _ := strings.Cut(w.in.Text(), ": ")
		switch {
		case name == "id":
			e.id = value
		case name == "event":
			e.name = value
		case name == "data":
			e.data = value
		case w.in.Text() == "" && e != event{}:
			return e
		}
	}
	require.NoError(w.t, w.in.Err())
	return event{name: "EOF"}
}

// named is the next event of that name.
func (w *sse) named(name string) (event, map[string]any) {
	w.t.Helper()
	for {
		e := w.next()
		require.NotEqual(w.t, "EOF", e.name, "waiting for %s", name)
		if e.name == name {
			var v map[string]any
			require.NoError(w.t, json.Unmarshal([]byte(e.data), &v), e.data)
			return e, v
		}
	}
}

// idOnly is the next event that moves the id and nothing else.
func (w *sse) idOnly() string {
	w.t.Helper()
	for {
		e := w.next()
		require.NotEqual(w.t, "EOF", e.name)
		if e.name == "" {
			return e.id
		}
	}
}

func TestASilentWatchIsHeard(t *testing.T) {
	b := setup(t)
	b.ready("a")
	for _, path := range []string{"/v1/watch?machine=gadget", "/v1/gadgets/a/watch"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			_, told := b.watch(path).named("stale") // an EventSource sees no comments
			require.Zero(t, told["staleSeconds"])
		})
	}
}

func TestWatchOne(t *testing.T) {
	b := setup(t)
	b.ready("a")
	w := b.watch("/v1/gadgets/a/watch")
	require.Equal(t, 200, w.res.StatusCode)
	require.Equal(t, "text/event-stream", w.res.Header.Get("Content-Type"))
	require.Equal(t, "no", w.res.Header.Get("X-Accel-Buffering"))
	require.Equal(t, "no-cache", w.res.Header.Get("Cache-Control"))
	_, snap := w.named("snapshot")
	entity := snap["items"].([]any)[0].(map[string]any)["entity"].(map[string]any)
	require.Equal(t, "READY", entity["state"])
	require.NotContains(t, entity, "outbox")

	rev := b.post("/v1/gadgets/a/resize", `{"size":5}`).json(t)["revision"]
	e, got := w.named("entity")
	require.Regexp(t, fmt.Sprintf(`^%v-\w+\.\w+\.\w+$`, rev), e.id)
	require.EqualValues(t, rev, got["revision"])
	require.NotContains(t, got, "commands")
	w.close()

	t.Run("ResumeSendsWhatWasMissed", func(t *testing.T) {
		rev := b.post("/v1/gadgets/a/resize", `{"size":6}`).json(t)["revision"]
		require.Equal(t, 200, b.get(fmt.Sprintf("/v1/gadgets/a?minRevision=%v", rev)).StatusCode) // the index follows what is stored
		_, snap := b.watch("/v1/gadgets/a/watch", "Last-Event-ID", e.id).named("snapshot")
		require.Len(t, snap["items"], 1)
	})
	t.Run("ResumeSendsNothingTwice", func(t *testing.T) {
		rev := b.get("/v1/gadgets/a").json(t)["revision"]
		_, snap := b.watch(fmt.Sprintf("/v1/gadgets/a/watch?after=%v", rev)).named("snapshot")
		require.Empty(t, snap["items"])
	})
	t.Run("AForeignIDBeginsAnew", func(t *testing.T) {
		w := b.watch("/v1/gadgets/a/watch?after=999999")
		_, reset := w.named("reset")
		require.NotEmpty(t, reset["reason"])
		_, snap := w.named("snapshot")
		require.Len(t, snap["items"], 1)
	})
	t.Run("Refused", func(t *testing.T) {
		b.get("/v1/gadgets/nobody/watch").problem(t, 404, machines.CodeNotFound)
		b.get("/v1/gadgets/a/watch?after=x").problem(t, 422, machines.CodeValidation)
	})
}

func TestWatchMany(t *testing.T) {
	b := setup(t)
	for i := range 3 {
		b.ready(fmt.Sprintf("g%d", i))
	}
	rev := b.post("/v1/gadgets/g0/parts/p/mount", `{}`).json(t)["revision"]
	require.Equal(t, 200, b.get(fmt.Sprintf("/v1/gadgets/g0/parts?minRevision=%v", rev)).StatusCode) // the index follows what is stored
	w := b.watch("/v1/watch")
	_, gadgets := w.named("snapshot")
	require.Equal(t, "gadget", gadgets["machine"])
	require.Len(t, gadgets["items"], 3)
	_, parts := w.named("snapshot")
	require.Len(t, parts["items"], 1)

	b.post("/v1/gadgets/g1/resize", `{"size":1}`)
	_, e := w.named("entity")
	require.Equal(t, "g1", e["id"])
	b.post("/v1/gadgets/far/create?namespace=other", `{"spec":{"name":"x"}}`)
	b.post("/v1/gadgets/g0/parts/p/remove", "")
	_, e = w.named("entity")
	require.Equal(t, "p", e["id"], "another namespace is not watched")

	id := w.idOnly()
	require.Contains(t, id, "gadget:")
	require.Contains(t, id, "part:")
	w.close()
	b.post("/v1/gadgets/g2/resize", `{"size":1}`)
	resumed := b.watch("/v1/watch", "Last-Event-ID", id)
	_, gadgets = resumed.named("snapshot")
	require.Len(t, gadgets["items"], 1)
	_, parts = resumed.named("snapshot")
	require.Empty(t, parts["items"])
	resumed.close()

	t.Run("Filters", func(t *testing.T) {
		w := b.watch("/v1/watch?machine=gadget&state=DELETED")
		_, snap := w.named("snapshot")
		require.Empty(t, snap["items"])
		b.post("/v1/gadgets/g2/resize", `{"size":2}`)
		b.post("/v1/gadgets/g2/delete", "")
		_, e := w.named("entity")
		require.Equal(t, "DELETED", e["state"])
		w.close()
		w = b.watch("/v1/watch?machine=part&parent=g0&id=p")
		_, snap = w.named("snapshot")
		require.Len(t, snap["items"], 1)
		w.close()
		for _, q := range []string{"machine=nope"} {
			b.get("/v1/watch?"+q).problem(t, 404, machines.CodeNotFound)
		}
		for _, q := range []string{"id=a", "parent=a", "machine=part&id=p", "machine=gadget&id=*", "state=NOPE", "machine=gadget&parent=x&id=y", "machine=gadget&id=a&namespace=*", "nope=1"} {
			b.get("/v1/watch?"+q).problem(t, 422, machines.CodeValidation)
		}
		b.get("/v1/watch?namespace=other", "Authorization", "Bearer tenant-token").problem(t, 404, machines.CodeNotFound)
	})
	t.Run("PurgedIsDeleted", func(t *testing.T) {
		w := b.watch("/v1/watch?machine=gadget")
		w.named("snapshot")
		kv, err := b.js.KeyValue(t.Context(), "gadgets")
		require.NoError(t, err)
		require.NoError(t, kv.Purge(t.Context(), "default.g2"))
		_, e := w.named("deleted")
		require.Equal(t, "default.g2", e["key"])
	})
	t.Run("TheTenantSeesItsOwn", func(t *testing.T) {
		w := b.watch("/v1/watch?namespace=*", "Authorization", "Bearer tenant-token")
		_, snap := w.named("snapshot")
		require.Empty(t, snap["items"])
		b.post("/v1/gadgets/g1/resize", `{"size":7}`)
		b.post("/v1/gadgets/own/create?namespace=acme", `{"spec":{"name":"x","hold":true}}`)
		_, e := w.named("entity")
		require.Equal(t, "acme", e["namespace"])
	})
}

func TestWatchEnds(t *testing.T) {
	b := setup(t)
	b.ready("a")
	t.Run("LostBeginsAnew", func(t *testing.T) {
		w := b.watch("/v1/watch?machine=gadget")
		w.named("snapshot")
		b.stop() // the index ends, and with it every subscription
		_, reset := w.named("reset")
		require.NotEmpty(t, reset["reason"])
		_, snap := w.named("snapshot")
		require.Len(t, snap["items"], 1)
	})
	t.Run("WithALastEvent", func(t *testing.T) {
		w := b.watch("/v1/gadgets/a/watch")
		w.named("snapshot")
		require.NoError(t, b.server.Close())
		_, end := w.named("end")
		require.NotEmpty(t, end["reason"])
		rest, err := io.ReadAll(w.res.Body)
		require.NoError(t, err, "the answer is complete")
		require.Empty(t, strings.TrimSpace(string(rest)))
		b.get("/v1/watch").problem(t, 503, "unavailable")
		require.Equal(t, 503, b.get("/readyz").StatusCode)
	})
}
