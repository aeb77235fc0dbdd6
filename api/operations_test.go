package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

func TestOperationOfACommand(t *testing.T) {
	b := setup(t)
	operation := func(id, key, body, prefer string) map[string]any {
		a := b.post("/v1/gadgets/"+id+"/create", body, "Prefer", prefer, "Idempotency-Key", key)
		require.Equal(t, 202, a.StatusCode, string(a.body))
		require.Equal(t, "/v1/operations/"+a.json(t)["operation"].(string), a.Header.Get("Location"))
		a = b.get(a.Header.Get("Location"), "Prefer", "wait=10")
		require.Equal(t, 200, a.StatusCode, string(a.body))
		require.Equal(t, "wait=10", a.Header.Get("Preference-Applied"))
		return a.json(t)
	}
	t.Run("Done", func(t *testing.T) {
		for i, key := range []string{"plain-1", "odd/..?%20#", "a.b", "x~"} {
			id := fmt.Sprintf("a%d", i)
			op := operation(id, key, `{"spec":{"name":"lamp"}}`, "respond-async")
			require.Equal(t, true, op["done"], op)
			meta := op["metadata"].(map[string]any)
			require.Equal(t, "READY", meta["step"])
			require.Equal(t, key, meta["commandId"])
			require.Equal(t, "/v1/gadgets/"+id, meta["target"])
			response := op["response"].(map[string]any)
			require.Equal(t, "applied", response["outcome"])
			require.EqualValues(t, 2, response["version"])
		}
	})
	t.Run("UnderWay", func(t *testing.T) {
		a := b.post("/v1/gadgets/held/create?settle=1ms", `{"spec":{"name":"lamp","hold":true}}`)
		began := time.Now()
		op := b.get(a.Header.Get("Location"), "Prefer", "wait=1").json(t)
		require.Greater(t, time.Since(began), 900*time.Millisecond)
		require.Equal(t, false, op["done"])
		require.Equal(t, "CREATING", op["metadata"].(map[string]any)["step"])
		require.NotContains(t, op, "response")
		p := b.post(a.Header.Get("Location")+"/cancel", "").problem(t, 409, machines.CodeTransition)
		require.Contains(t, p["allowedCommands"], "delete")
	})
	t.Run("Refused", func(t *testing.T) {
		b.ready("taken")
		op := operation("taken", "again", `{"spec":{"name":"lamp"}}`, "respond-async")
		require.Equal(t, true, op["done"])
		require.Equal(t, machines.CodeExists, op["error"].(map[string]any)["code"])
		require.NotContains(t, op, "response")
	})
	t.Run("NotThere", func(t *testing.T) {
		for _, name := range []string{"gadget.default.x.none", "gadget.default.x", "gadget.default.X.a", "thing.default.x.a", "part.default.x.a", "gadget.default.x.~!", "x", "batch.none", "batch.", "batch.default.none", "batch._all.none", "batch.A.b", "batch.a.b.c", "batch..x"} {
			b.get("/v1/operations/"+name).problem(t, 404, "not-found")
			b.post("/v1/operations/"+name+"/cancel", "").problem(t, 404, "not-found")
		}
		b.get("/v1/operations/gadget.default.taken.again", "Authorization", "Bearer tenant-token").problem(t, 404, "not-found")
	})
	t.Run("NotDecided", func(t *testing.T) {
		b.engine.hush(func(string) bool { return true })
		a := b.post("/v1/gadgets/mute/create", `{"spec":{"name":"lamp"}}`, "Prefer", "respond-async")
		op := b.get(a.Header.Get("Location")).json(t)
		require.Equal(t, false, op["done"])
		require.Equal(t, "stored", op["metadata"].(map[string]any)["step"])
	})
}

func TestBatch(t *testing.T) {
	b := setup(t)
	for i := range 7 {
		a := b.post(fmt.Sprintf("/v1/gadgets/g%d/create?settle=10s", i), fmt.Sprintf(`{"spec":{"name":"x","size":%d},"labels":{"team":"%s"}}`, i*3, map[bool]string{true: "web", false: "db"}[i < 5]))
		require.Equal(t, 200, a.StatusCode)
	}
	rev := b.get("/v1/gadgets/g6").Header.Get("ETag")
	require.Equal(t, 200, b.get("/v1/gadgets?minRevision="+rev[1:len(rev)-1]).StatusCode)
	done := func(a answer) map[string]any {
		require.Equal(t, 202, a.StatusCode, string(a.body))
		a = b.get(a.Header.Get("Location"), "Prefer", "wait=20")
		require.Equal(t, 200, a.StatusCode, string(a.body))
		op := a.json(t)
		require.Equal(t, true, op["done"], op)
		return op
	}
	t.Run("ThoseThatHaveLongBeenInTheirState", func(t *testing.T) {
		since := b.get("/v1/gadgets/g3").json(t)["since"].(string) // before g4 and those behind it were made
		plan := b.post("/v1/batches", fmt.Sprintf(`{"machine":"gadget","command":"resize","body":{"size":9},"dryRun":true,"filter":{"sinceBefore":"%s"}}`, since)).json(t)
		require.Equal(t, []any{"default.g0", "default.g1", "default.g2"}, plan["keys"])
	})
	t.Run("AllThatMatch", func(t *testing.T) {
		op := done(b.post("/v1/batches", `{"machine":"gadget","filter":{"labels":["team=web"],"states":["READY"]},"command":"resize","body":{"size":9}}`, "Instar-Reason", "spring"))
		r := op["response"].(map[string]any)
		require.EqualValues(t, 5, r["matched"])
		require.EqualValues(t, 5, r["applied"])
		require.Empty(t, r["failures"])
		for i, size := range []float64{9, 9, 9, 9, 9, 15, 18} {
			e := b.get(fmt.Sprintf("/v1/gadgets/g%d", i)).json(t)
			require.Equal(t, size, e["data"].(map[string]any)["spec"].(map[string]any)["size"])
		}
		events := b.get("/v1/gadgets/g0/events?type=gadget.resized").json(t)["items"].([]any)
		require.Equal(t, "boss", events[0].(map[string]any)["actor"])
		require.Equal(t, "spring", events[0].(map[string]any)["reason"])
	})
	t.Run("RefusalsAreCounted", func(t *testing.T) {
		r := done(b.post("/v1/batches", `{"machine":"gadget","command":"shrink"}`))["response"].(map[string]any)
		require.EqualValues(t, 7, r["matched"])
		require.EqualValues(t, 5, r["refused"], "of a size below 10")
		require.Len(t, r["failures"], 5)
		require.Equal(t, map[string]any{"key": "default.g0", "code": machines.CodeGuard}, withoutDetail(r["failures"].([]any)[0]))
	})
	t.Run("UnderOneKeyOnce", func(t *testing.T) {
		body := `{"machine":"gadget","filter":{"labels":["team=db"]},"command":"resize","body":{"size":12}}`
		first := b.post("/v1/batches", body, "Idempotency-Key", "k1")
		one := done(first)
		before := b.stored()
		again := b.post("/v1/batches", body, "Idempotency-Key", "k1")
		require.Equal(t, first.Header.Get("Location"), again.Header.Get("Location"))
		require.Empty(t, first.Header.Get("Idempotent-Replayed"))
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		require.Equal(t, one["response"], done(again)["response"])
		require.Equal(t, before, b.stored())
		p := b.post("/v1/batches", `{"machine":"gadget","command":"touch"}`, "Idempotency-Key", "k1")
		p.problem(t, 422, machines.CodeKeyReused)
		require.Empty(t, p.Header.Get("Idempotent-Replayed"))
		b.post(first.Header.Get("Location")+"/cancel", "").problem(t, 409, machines.CodeTransition)
	})
	t.Run("DryRun", func(t *testing.T) {
		before := b.stored()
		a := b.post("/v1/batches", `{"machine":"gadget","filter":{"labels":["team=db"]},"command":"delete","dryRun":true}`)
		require.Equal(t, 200, a.StatusCode, string(a.body))
		require.JSONEq(t, `{"matched":2,"keys":["default.g5","default.g6"]}`, string(a.body))
		b.post("/v1/batches", `{"machine":"gadget","filter":{"keys":[]},"command":"delete","dryRun":true}`).problem(t, 422, "validation") // that is nobody, and not all
		require.Equal(t, before, b.stored())
	})
	t.Run("WrongOnes", func(t *testing.T) {
		for _, body := range []string{
			`{"machine":"nope","command":"touch"}`, `{"machine":"gadget","command":"create","body":{"spec":{"name":"x"}}}`, `{"machine":"gadget","command":"made"}`, `{"machine":"gadget"}`,
			`{"machine":"gadget","command":"resize","body":{"size":"x"}}`, `{"machine":"gadget","command":"touch","body":{"x":1}}`, `{"machine":"gadget","command":"touch","filter":{"states":["DANCING"]}}`,
			`{"machine":"gadget","command":"touch","filter":{"labels":["a b=c"]}}`, `{"machine":"gadget","command":"touch","filter":{"parent":"x"}}`, `{"machine":"gadget","command":"touch","filter":{"namespace":"A.B"}}`,
		} {
			b.post("/v1/batches", body).problem(t, 422, machines.CodeValidation)
		}
		for body, says := range map[string]string{
			`{"machine":"gadgte","command":"touch"}`:                                         `there is no machine \"gadgte\"; there are gadget, part`,
			`{"machine":"gadget","command":"tuch"}`:                                          `\"tuch\" is no command for entities of gadget that are there; it has resize, touch, shrink, delete, purge, mend`,
			`{"machine":"gadget","command":"touch","filter":{"states":["READY","DANCING"]}}`: `\"DANCING\" is no state of gadget; it has CREATING, READY, BROKEN, DELETED`,
		} {
			require.Contains(t, string(b.post("/v1/batches", body).body), says)
		}
		b.post("/v1/batches", `{"machine":"gadget","command":"purge"}`, "Authorization", "Bearer operate-token").problem(t, 403, "forbidden")
		b.post("/v1/batches", `{"machine":"gadget","command":"touch"}`, "Authorization", "Bearer read-token").problem(t, 403, "forbidden")
		b.post("/v1/batches", `{"machine":"gadget","command":"touch","filter":{"namespace":"default"}}`, "Authorization", "Bearer tenant-token").problem(t, 404, "not-found")
	})
	t.Run("Listed", func(t *testing.T) {
		page := func(query string, header ...string) (names []string, next string) {
			a := b.get("/v1/batches"+query, header...)
			require.Equal(t, 200, a.StatusCode, string(a.body))
			for _, it := range a.json(t)["items"].([]any) {
				names = append(names, it.(map[string]any)["name"].(string))
			}
			return names, a.json(t)["nextCursor"].(string)
		}
		all, next := page("")
		require.Len(t, all, 3)
		require.Equal(t, "batch.default.k1", all[0], "the last one that was sent")
		require.Empty(t, next)
		two, next := page("?limit=2")
		rest, end := page("?limit=2&cursor=" + next)
		require.Equal(t, all, append(two, rest...))
		require.Empty(t, end)
		refusals := b.get("/v1/batches?namespace=*").json(t)["items"].([]any)[1].(map[string]any)
		require.Equal(t, "boss", refusals["metadata"].(map[string]any)["actor"])
		require.EqualValues(t, 5, refusals["response"].(map[string]any)["refused"])
		require.Len(t, refusals["response"].(map[string]any)["failures"], 3, "of 5")
		none, _ := page("?namespace=*", "Authorization", "Bearer tenant-token")
		require.Empty(t, none)
		b.get("/v1/batches?namespace=default", "Authorization", "Bearer tenant-token").problem(t, 404, "not-found")
	})
	t.Run("OnlyWhatTheTokenSees", func(t *testing.T) {
		a := b.post("/v1/batches", `{"machine":"gadget","command":"touch","filter":{"namespace":"*"}}`, "Authorization", "Bearer tenant-token")
		require.EqualValues(t, 0, done(a)["response"].(map[string]any)["matched"])
		a = b.post("/v1/batches", `{"machine":"gadget","command":"touch","filter":{"namespace":"*"}}`)
		require.EqualValues(t, 7, done(a)["response"].(map[string]any)["matched"])
		b.get(a.Header.Get("Location"), "Authorization", "Bearer tenant-token").problem(t, 404, "not-found")
	})
}

// The key of a batch is one of its namespace: who uses the same one elsewhere neither meets it nor learns of it.
func TestBatchKeysOfTwoNamespaces(t *testing.T) {
	b := setup(t)
	acme := []string{"Authorization", "Bearer tenant-token", "Idempotency-Key", "nightly"}
	all := []string{"Idempotency-Key", "nightly"}
	for _, ns := range []string{"acme", "default"} {
		require.Equal(t, 200, b.post("/v1/gadgets/one/create?settle=10s&namespace="+ns, `{"spec":{"name":"x"}}`).StatusCode)
	}
	require.Eventually(t, func() bool { return b.indexes.Get("gadget").Counts("")["READY"] == 2 }, soon, time.Millisecond)
	size := func(ns string) any {
		return b.get("/v1/gadgets/one?namespace=" + ns).json(t)["data"].(map[string]any)["spec"].(map[string]any)["size"]
	}
	var seen []string
	for i, c := range []struct {
		filter  string
		headers []string
		size    int
		acme    any
		def     any
	}{
		{`"namespace":"acme"`, acme, 4, 4.0, nil}, {`"namespace":"default"`, all, 5, 4.0, 5.0}, {`"namespace":"*"`, all, 6, 6.0, 6.0},
	} {
		a := b.post("/v1/batches", fmt.Sprintf(`{"machine":"gadget","filter":{%s},"command":"resize","body":{"size":%d}}`, c.filter, c.size), c.headers...)
		require.Equal(t, 202, a.StatusCode, string(a.body))
		require.Empty(t, a.Header.Get("Idempotent-Replayed"))
		at := a.Header.Get("Location")
		require.NotContains(t, seen, at)
		seen = append(seen, at)
		op := b.get(at, "Prefer", "wait=20").json(t)
		require.Equal(t, true, op["done"], op)
		require.Empty(t, op["response"].(map[string]any)["failures"])
		require.Equal(t, []any{c.acme, c.def}, []any{size("acme"), size("default")})
		if i > 0 {
			b.get(at, "Authorization", "Bearer tenant-token").problem(t, 404, "not-found")
			b.post(at+"/cancel", "", "Authorization", "Bearer tenant-token").problem(t, 404, "not-found")
		}
	}
}

func withoutDetail(failure any) map[string]any {
	f := failure.(map[string]any)
	delete(f, "detail")
	return f
}

// A batch whose commands cannot be stored stops at their page, says which they are, and goes on with them when it is sent
// again: each entity gets the command once.
func TestBatchOfWhatFailed(t *testing.T) {
	b := setup(t)
	for i := range 3 {
		require.Equal(t, 200, b.post(fmt.Sprintf("/v1/gadgets/g%d/create", i), `{"spec":{"name":"x"}}`).StatusCode)
	}
	require.Eventually(t, func() bool { return b.indexes.Get("gadget").Counts("default")["READY"] == 3 }, soon, time.Millisecond)
	bound := func(size int32) {
		st, err := b.js.Stream(t.Context(), streams.CommandStream)
		require.NoError(t, err)
		config := st.CachedInfo().Config
		config.MaxMsgSize = size
		_, err = b.js.UpdateStream(t.Context(), config)
		require.NoError(t, err)
	}
	send := func() (string, map[string]any) {
		a := b.post("/v1/batches", `{"machine":"gadget","command":"resize","body":{"size":2}}`, "Idempotency-Key", "k")
		require.Equal(t, 202, a.StatusCode, string(a.body))
		op := b.get(a.Header.Get("Location"), "Prefer", "wait=20").json(t)
		return op["metadata"].(map[string]any)["step"].(string), op["metadata"].(map[string]any)["progress"].(map[string]any)
	}
	bound(1)
	for range 2 {
		step, p := send()
		require.Equal(t, "stalled", step)
		require.EqualValues(t, 3, p["failed"])
		require.EqualValues(t, 0, p["matched"], "their turn is still to come")
		require.Len(t, p["failures"], 3)
	}
	bound(-1)
	step, p := send()
	require.Equal(t, "done", step)
	require.EqualValues(t, 3, p["applied"])
	require.EqualValues(t, 0, p["failed"])
	require.Empty(t, p["failures"])
	step, _ = send()
	require.Equal(t, "done", step)
}

// A batch that is cancelled soon sends nothing more, and one whose process has died goes on where it was.
func TestBatchEndsAndGoesOn(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.AnswerWithin = 2 * time.Second })
	const all = 103 // more than a page
	for i := range all {
		require.Equal(t, 200, b.post(fmt.Sprintf("/v1/gadgets/g%03d/create", i), `{"spec":{"name":"x"}}`).StatusCode)
	}
	require.Eventually(t, func() bool { return b.indexes.Get("gadget").Counts("default")["READY"] == all }, soon, time.Millisecond)
	body := `{"machine":"gadget","command":"resize","body":{"size":2}}`

	b.engine.hush(func(command string) bool { return command == "resize" })
	before := b.stored()
	a := b.post("/v1/batches", body, "Idempotency-Key", "slow")
	require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
	c := b.post(a.Header.Get("Location")+"/cancel", "")
	require.Equal(t, 200, c.StatusCode, string(c.body))
	require.Equal(t, "cancelling", c.json(t)["metadata"].(map[string]any)["step"])
	op := b.get(a.Header.Get("Location"), "Prefer", "wait=20").json(t)
	require.Equal(t, true, op["done"])
	require.Equal(t, "cancelled", op["error"].(map[string]any)["code"])
	sent := op["metadata"].(map[string]any)["progress"].(map[string]any)["matched"]
	require.EqualValues(t, b.stored()-before, sent)
	require.Less(t, sent, 100.0, "not even the rest of the page")
	b.engine.hush(nil)

	require.NoError(t, b.server.LeaveBatch("default.left", body, "default.g099", time.Minute))
	op = b.get("/v1/operations/batch.default.left").json(t)
	require.Equal(t, "stalled", op["metadata"].(map[string]any)["step"])
	a = b.post("/v1/batches", body, "Idempotency-Key", "left")
	op = b.get(a.Header.Get("Location"), "Prefer", "wait=20").json(t)
	require.Equal(t, true, op["done"])
	require.EqualValues(t, all-100, op["response"].(map[string]any)["matched"])

	// The keys of what was sent are forgotten by now: whoever goes on would send the page again.
	require.NoError(t, b.server.LeaveBatch("default.old", body, "default.g099", streams.IdempotencyWindow-time.Minute))
	before = b.stored()
	a = b.post("/v1/batches", body, "Idempotency-Key", "old")
	require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
	op = b.get(a.Header.Get("Location"), "Prefer", "wait=20").json(t)
	require.Equal(t, true, op["done"])
	require.Equal(t, "expired", op["metadata"].(map[string]any)["step"])
	require.Equal(t, "expired", op["error"].(map[string]any)["code"])
	require.Equal(t, before, b.stored(), "nothing was sent")

	// Those of one client keep nobody else from one, and what is done is told.
	defer b.server.TakeBatches("token boss")()
	a = b.post("/v1/batches", body, "Idempotency-Key", "left")
	require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
	require.Equal(t, true, a.json(t)["done"])
	require.Equal(t, "true", a.Header.Get("Idempotent-Replayed"))
	before = b.stored()
	a = b.post("/v1/batches", body, "Idempotency-Key", "new")
	a.problem(t, 429, "rate-limited")
	require.Equal(t, "5", a.Header.Get("Retry-After"))
	b.get("/v1/operations/batch.default.new").problem(t, 404, "not-found")
	require.NoError(t, b.server.LeaveBatch("default.again", body, "default.g099", time.Minute))
	b.post("/v1/batches", body, "Idempotency-Key", "again").problem(t, 429, "rate-limited")
	require.Equal(t, before, b.stored())
	b.metric(`instar_limit_refused_total{limit="batches",of="client"} 3`) // and that of TakeBatches
	a = b.post("/v1/batches", body, "Authorization", "Bearer operate-token")
	require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
	for i := range 3 {
		defer b.server.TakeBatches(fmt.Sprint("other ", i))()
	}
	require.Eventually(t, func() bool { return b.get(a.Header.Get("Location")).json(t)["done"] == true }, time.Minute, 10*time.Millisecond)
	defer b.server.TakeBatches("the last one")()
	b.post("/v1/batches", body, "Authorization", "Bearer operate-token").problem(t, 503, "unavailable")
}
