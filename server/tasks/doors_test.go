package tasks_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"
)

// A batch gets through the same doors as single commands: no further than a cap, and past no unique key.
func bulkCapped(p *place) {
	p.pauses("/v1/repositories/a")
	p.sets("/v1/queues/type-few", "configure", `{"cap":3}`)
	for i := range 10 {
		p.task(fmt.Sprintf("t%d", i), `{"type":"few"}`)
	}
	of := func(command, state, body string) string {
		return fmt.Sprintf(`{"machine":"task","command":%q,"body":%s,"filter":{"namespace":%q,"parent":"a","states":[%q]}}`, command, body, p.ns, state)
	}
	done := p.batch(of("run", "pending", "{}"))
	require.EqualValues(p.t, 3, done["applied"], "%v", done)
	require.EqualValues(p.t, 7, done["refused"], "%v", done)
	require.Equal(p.t, "rate-limited", done["failures"].([]any)[0].(map[string]any)["code"])
	queued := 0
	for i := range 10 {
		if p.state(fmt.Sprintf("t%d", i)) == "queued" {
			queued++
		}
	}
	require.Equal(p.t, 3, queued, "nothing was stored of the others")

	p.task("u1", `{"type":"other","uniqueKey":"k","run":true}`)
	p.task("u2", `{"type":"other","uniqueKey":"k"}`)
	p.eventually("the unique key is held", func() bool {
		resp, _ := p.do("POST", p.path("/v1/tasks/u2/run"), "")
		if resp.StatusCode != http.StatusConflict {
			p.post("/v1/tasks/u2/cancel", "")
		}
		return resp.StatusCode == http.StatusConflict
	})
	p.post("/v1/queues/type-few/delete", "")
	p.eventually("only the unique one is refused", func() bool {
		done = p.batch(of("run", "pending", "{}"))
		return done["refused"].(float64) <= 1 && done["matched"].(float64) <= 1
	})
}

// A repository takes no more tasks than it may have queued, whatever their types are.
func repositoryCapped(p *place) {
	p.sets("/v1/repositories/a", "configure", `{"cap":2}`)
	p.pauses("/v1/repositories/a")
	for i, typ := range []string{"one", "two", "three"} {
		p.task(fmt.Sprintf("t%d", i), fmt.Sprintf(`{"type":%q}`, typ))
	}
	p.post("/v1/tasks/t0/run", "")
	p.post("/v1/tasks/t1/run", "")
	resp, text := p.do("POST", p.path("/v1/tasks/t2/run"), "")
	require.Equal(p.t, http.StatusTooManyRequests, resp.StatusCode, text)
	require.NotEmpty(p.t, resp.Header.Get("Retry-After"))
	require.Contains(p.t, text, "repository repocap.a has 2 queued tasks, as many as it may")
	p.sets("/v1/repositories/a", "configure", `{"cap":3}`)
	p.task("last", `{"type":"four","runAfter":["t2"]}`)
	p.post("/v1/tasks/last/run", "")
	p.eventually("what a queued one waits for gets in", func() bool {
		resp, _ := p.do("POST", p.path("/v1/tasks/t2/run"), "")
		return resp.StatusCode == http.StatusOK
	})
}

// The node that schedules says why a task waits.
func why(p *place) {
	says := func(name, text string) {
		p.t.Helper()
		last := ""
		defer func() {
			if p.t.Failed() {
				p.t.Log(last)
			}
		}()
		p.eventually(name+" waits: "+text, func() bool {
			resp, said := p.do("GET", p.path("/v1/tasks/"+name+"/why"), "")
			last = said
			return resp.StatusCode == http.StatusOK && strings.Contains(said, text)
		})
	}
	p.pauses("/v1/queues/type-off")
	p.task("off", `{"type":"off","run":true}`)
	says("off", "queue why.type-off is paused")
	p.task("later", `{"type":"noop","run":true,"notBefore":"2100-01-01T00:00:00Z"}`)
	says("later", "it is not before 2100-01-01T00:00:00Z")
	p.task("after", `{"type":"noop","run":true,"runAfter":["later"]}`)
	says("after", "it runs after why.a.later")
	p.task("again", `{"type":"flaky","backoff":"20m","run":true}`)
	says("again", "; its last attempt failed: flaky: not now")
	p.task("idle", `{"type":"noop"}`)
	says("idle", "it is pending")
	p.refused(404, "GET", "/v1/tasks/none/why", "")
	_, page := p.do("GET", "/metrics", "")
	for _, name := range []string{`instar_tasks_waiting{reason="pause"}`, `instar_tasks_waiting{reason="turn"}`, "instar_tasks_slots_limit", "instar_tasks_oldest_seconds", "instar_tasks_started_total", "instar_tasks_wait_seconds_count"} {
		require.Contains(p.t, page, "\n"+name)
	}
}

// A command that the engine refuses leaves its unique key to others at once, and one that is only asked about takes it from nobody.
func uniqueLeft(p *place) {
	p.pauses("/v1/repositories/a")
	p.task("one", `{"type":"noop"}`)
	for i := range 5 {
		key := fmt.Sprint("k", i)
		text := p.refused(409, "POST", "/v1/repositories/a/tasks/one/create", fmt.Sprintf(`{"type":"noop","uniqueKey":%q,"run":true}`, key))
		require.Contains(p.t, text, "one")
		p.task(fmt.Sprint("two", i), fmt.Sprintf(`{"type":"noop","uniqueKey":%q,"run":true}`, key))
		p.do("POST", p.path(fmt.Sprintf("/v1/repositories/a/tasks/two%d/create?dryRun=true", i)), fmt.Sprintf(`{"type":"noop","uniqueKey":%q,"run":true}`, key))
		text = p.refused(409, "POST", fmt.Sprintf("/v1/repositories/a/tasks/three%d/create", i), fmt.Sprintf(`{"type":"noop","uniqueKey":%q,"run":true}`, key))
		require.Contains(p.t, text, "the unique key "+key)
	}
}
