package api_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/limits"
)

// What storage is asked over HTTP waits for the turn of the client that asks, on every route; what is answered from memory, and commands, do not.
// Another client is answered meanwhile.
func TestReadsTakeTurns(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.AnswerWithin = 2 * time.Second })
	b.ready("a")
	b.letters.all = append(b.letters.all, letter(1, "default.a", "{}"))
	leave := b.server.TakeReads("token boss")
	reads := []string{
		"GET /v1/gadgets/a", "GET /v1/gadgets?include=data", "GET /v1/gadgets?minRevision=999999", "GET /v1/gadgets/a/events", "GET /v1/gadgets/a/stored-value", "GET /v1/gadgets/a/sizes",
		"GET /v1/gadgets/none/watch", "GET /v1/operations/gadget.default.a.x", "GET /v1/operations/batch.default.x", "GET /v1/dead-letters", "GET /v1/dead-letters/1", "POST /v1/gadgets/a/touch?dryRun",
	}
	var all sync.WaitGroup
	answers := make([]answer, len(reads))
	for i, read := range reads {
		all.Go(func() {
			var method, path string
			_, _ = fmt.Sscan(read, &method, &path)
			answers[i] = b.do(method, path, "")
		})
	}
	for _, path := range []string{"/v1/gadgets", "/v1/machines/gadget/counts"} {
		require.Equal(t, http.StatusOK, b.get(path).StatusCode, path)
	}
	require.Equal(t, http.StatusOK, b.post("/v1/gadgets/a/touch", "").StatusCode)
	a := b.get("/v1/gadgets?include=data", "Authorization", "Bearer read-token")
	require.Equal(t, http.StatusOK, a.StatusCode, string(a.body))
	require.Contains(t, string(a.body), `"allowedCommands"`)
	all.Wait()
	for i, a := range answers {
		require.Equal(t, http.StatusServiceUnavailable, a.StatusCode, reads[i]+": "+string(a.body))
		require.Contains(t, string(a.body), "the turn of this client did not come in time; nothing was done", reads[i])
	}
	leave()
	require.Equal(t, http.StatusOK, b.get("/v1/gadgets/a").StatusCode)
	b.metric(`instar_limit_held{limit="questions"} 0`)
}

// A command that is not waited for does not wait for reads, also where it might have an answer by its key.
func TestCommandsDoNotWaitForReads(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.AnswerWithin = time.Minute }) // turns, too, come within it
	b.ready("a")
	leave := b.server.TakeReads("token boss")
	began := time.Now()
	for _, header := range [][]string{{"Prefer", "respond-async"}, {"Prefer", "respond-async", "Idempotency-Key", "k"}} {
		require.Equal(t, http.StatusAccepted, b.post("/v1/gadgets/a/touch", "", header...).StatusCode)
	}
	require.Less(t, time.Since(began), 30*time.Second)
	leave()
}

// A list with whole entities makes do with one place in the line, and is refused before it reads anything where the client has none left.
func TestAListOfWholeEntitiesNeedsOnePlace(t *testing.T) {
	const all = 20
	b := setup(t, func(o *api.Options) { o.Limits.Questions = limits.Bound{Each: 1} })
	for i := range all {
		require.Equal(t, http.StatusOK, b.post(fmt.Sprintf("/v1/gadgets/g%d/create", i), `{"spec":{"name":"x","hold":true}}`).StatusCode)
	}
	require.Eventually(t, func() bool { return b.indexes.Get("gadget").Len() == all }, soon, time.Millisecond)
	leave := b.server.TakeReads("token reader")
	a := b.get("/v1/gadgets?include=data", "Authorization", "Bearer read-token")
	a.problem(t, http.StatusTooManyRequests, "rate-limited")
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	leave()
	items := b.get("/v1/gadgets?include=data", "Authorization", "Bearer read-token").json(t)["items"].([]any)
	require.Len(t, items, all)
	for _, one := range items {
		require.NotNil(t, one.(map[string]any)["entity"])
	}
}
