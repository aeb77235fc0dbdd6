package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/server"
)

// script does what the type of a task says: noop, bad (fails for good), flaky (once), later (asks once to wait), hold (until it is released, or nobody waits).
type script struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

func (s *script) gate(key string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[key] == nil {
		s.held[key] = make(chan struct{})
	}
	return s.held[key]
}

func (s *script) Perform(ctx context.Context, t machines.Task) machines.Result {
	if t.Effect == task.EffectErase {
		return machines.Result{Data: task.Erased{}}
	}
	var r task.Run
	if err := json.Unmarshal(t.Data, &r); err != nil {
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: err.Error()}}
	}
	switch {
	case r.Type == "bad":
		return machines.Result{Failure: &machines.Failure{Code: "bad", Message: "never"}}
	case r.Type == "flaky" && r.Attempt == 1:
		return machines.Result{Failure: &machines.Failure{Code: "flaky", Message: "not now", Retryable: true}}
	case r.Type == "later" && r.Previous == nil && time.Since(r.Deadline.Add(-r.Timeout)) >= 0 && s.first(t.Key()):
		return machines.Result{Data: task.Result{Snooze: "300ms"}}
	case r.Type == "hold":
		select {
		case <-s.gate(t.Key()):
		case <-ctx.Done():
		}
	}
	return machines.Result{Data: task.Result{Summary: "done"}}
}

// first reports whether a key is seen for the first time.
func (s *script) first(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, seen := s.held["seen "+key]
	s.held["seen "+key] = nil
	return !seen
}

// place is a namespace of its own on a server that several tests share.
type place struct {
	*running
	ns string
	s  *script
}

func (p *place) path(path string) string {
	sign := "?"
	if strings.Contains(path, "?") {
		sign = "&"
	}
	return path + sign + "namespace=" + p.ns
}

func (p *place) ok(method, path, body string) map[string]any {
	p.t.Helper()
	return p.running.ok(method, p.path(path), body)
}

func (p *place) refused(status int, method, path, body string) string {
	p.t.Helper()
	return p.running.refused(status, method, p.path(path), body)
}

func (p *place) comes(path, state string) { p.t.Helper(); p.running.comes(p.path(path), state) }

func (p *place) post(path, body string) map[string]any { p.t.Helper(); return p.ok("POST", path, body) }

// task creates one, and waits until it is found by its name alone.
func (p *place) task(name, body string) {
	p.t.Helper()
	revision := p.post("/v1/repositories/a/tasks/"+name+"/create", body)["revision"].(float64)
	p.ok("GET", fmt.Sprintf("/v1/tasks?minRevision=%.0f", revision), "")
}

func (p *place) one(name string) map[string]any {
	p.t.Helper()
	return p.ok("GET", "/v1/repositories/a/tasks/"+name, "")
}

func (p *place) state(name string) string { p.t.Helper(); return p.one(name)["state"].(string) }

func (p *place) is(name, state string) {
	p.t.Helper()
	p.comes("/v1/repositories/a/tasks/"+name, state)
}

func (p *place) data(name, field string) any {
	p.t.Helper()
	return p.one(name)["data"].(map[string]any)[field]
}

func (p *place) at(name, field string) time.Time {
	p.t.Helper()
	at, err := time.Parse(time.RFC3339Nano, p.data(name, field).(string))
	require.NoError(p.t, err)
	return at
}

func (p *place) eventually(what string, holds func() bool) {
	p.t.Helper()
	require.Eventually(p.t, holds, 30*time.Second, 20*time.Millisecond, what)
}

// passes runs a task of another repository to its end, so that what waits before it has had its turn.
func (p *place) passes() {
	p.t.Helper()
	_, _ = p.do("POST", p.path("/v1/repositories/other/create"), `{}`) // or it is there
	p.post("/v1/repositories/other/tasks/pass/create", `{"type":"pass","run":true}`)
	p.comes("/v1/repositories/other/tasks/pass", "succeeded")
	p.post("/v1/repositories/other/tasks/pass/delete", "")
	p.comes("/v1/repositories/other/tasks/pass", "deleted")
}

// pauses pauses an entry or a repository, and waits until lists show it: from then on it holds for what is queued.
func (p *place) pauses(path string) {
	p.t.Helper()
	p.sets(path, "pause", `{"reason":"test"}`)
}

// sets sends a command, and waits until the doors know what it has set.
func (p *place) sets(path, command, body string) {
	p.t.Helper()
	revision := p.post(path+"/"+command, body)["revision"].(float64)
	p.ok("GET", fmt.Sprintf("%s?minRevision=%.0f", path[:strings.LastIndexByte(path, '/')], revision), "")
}

// From door to event log, each in a namespace of its own.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	s := &script{held: map[string]chan struct{}{}}
	shared := start(t, func(context.Context, *server.Host) (effects.Performer, error) { return s, nil })
	shared.ok("POST", "/v1/queues/cluster/configure", `{"limit":64,"aging":"1s"}`)
	for name, test := range map[string]func(*place){
		"cron": cron, "delay": delay, "rate": rate, "cap": capped, "pause": pause, "retry": retry, "force": force, "stuck": stuck, "bulk": bulk, "bulkcap": bulkCapped, "repocap": repositoryCapped, "uniqueleft": uniqueLeft, "why": why, "dag": dag,
		"unique": unique, "snooze": snooze, "priority": priority, "badinput": badInput, "fresh": fresh,
	} {
		t.Run(name, func(t *testing.T) {
			p := &place{running: &running{t: t, url: shared.url, nats: shared.nats}, ns: name, s: s}
			p.post("/v1/repositories/a/create", `{}`)
			test(p)
		})
	}
}

func cron(p *place) {
	p.task("tick", `{"type":"noop","cron":"* * * * * *"}`)
	p.eventually("it runs again and again", func() bool { n, _ := p.data("tick", "enqueue").(float64); return n >= 2 })
	p.post("/v1/repositories/a/tasks/tick/schedule", `{}`)
	require.Nil(p.t, p.data("tick", "nextRun"))
	p.is("tick", "succeeded")
	p.refused(422, "POST", "/v1/repositories/a/tasks/tick/schedule", `{"cron":"every day"}`)
	p.refused(422, "POST", "/v1/repositories/a/tasks/tick/schedule", `{"cron":"0 3 * * *","timeZone":"Mars/North"}`)
	p.post("/v1/repositories/a/tasks/tick/schedule", `{"cron":"0 3 * * *","timeZone":"Europe/Berlin"}`)
	p.post("/v1/repositories/a/tasks/tick/schedule", `{"cron":"","timeZone":"Europe/Berlin"}`)
	require.Nil(p.t, p.data("tick", "timeZone"))
	require.Nil(p.t, p.data("tick", "nextRun"))
}

// Who runs all tasks of a repository right after it was created runs all that it asks for.
func fresh(p *place) {
	var analyses []string
	for i := range 30 {
		analyses = append(analyses, fmt.Sprintf("%q", fmt.Sprintf("kind-%02d", i)))
	}
	p.post("/v1/repositories/new/create", `{"analyses":[`+strings.Join(analyses, ",")+`]}`)
	require.InDelta(p.t, len(analyses), p.post("/v1/repositories/new/run-all", "")["enqueued"], 0)
}

func delay(p *place) {
	p.task("one", `{"type":"noop","run":true,"delay":"1200ms"}`)
	require.Equal(p.t, "queued", p.state("one"))
	p.is("one", "succeeded")
	require.GreaterOrEqual(p.t, p.at("one", "startedAt").Sub(p.at("one", "queuedAt")), 1200*time.Millisecond)
	p.task("two", `{"type":"noop","run":true,"notBefore":"2100-01-01T00:00:00Z"}`)
	p.passes()
	require.Equal(p.t, "queued", p.state("two"))
	p.refused(422, "POST", "/v1/tasks/one/run", `{"again":true,"delay":"1s","notBefore":"2100-01-01T00:00:00Z"}`)
}

// Two in each second, whatever the other limits are.
func rate(p *place) {
	p.post("/v1/repositories/wide/create", `{"concurrency":8}`)
	p.post("/v1/queues/type-rated/configure", `{"rate":2,"interval":"1s"}`)
	p.post("/v1/queues/type-rated/pause", `{}`)
	for i := range 6 {
		p.post(fmt.Sprintf("/v1/repositories/wide/tasks/t%d/create", i), `{"type":"rated","run":true}`)
	}
	began := time.Now()
	p.post("/v1/queues/type-rated/resume", `{}`)
	last := began
	for i := range 6 {
		p.comes(fmt.Sprintf("/v1/repositories/wide/tasks/t%d", i), "succeeded")
		e := p.ok("GET", fmt.Sprintf("/v1/repositories/wide/tasks/t%d", i), "")
		at, err := time.Parse(time.RFC3339Nano, e["data"].(map[string]any)["startedAt"].(string))
		require.NoError(p.t, err)
		if at.After(last) {
			last = at
		}
	}
	// Who schedules looks at his clock a moment before he sees the resume.
	require.Greater(p.t, last.Sub(began), 1900*time.Millisecond, "six need two more intervals after that of the first")
}

func capped(p *place) {
	p.pauses("/v1/queues/type-few")
	p.sets("/v1/queues/type-few", "configure", `{"cap":2}`)
	for i := range 3 {
		p.task(fmt.Sprintf("t%d", i), `{"type":"few"}`)
	}
	plan := p.post("/v1/repositories/a/run-all", `{"dryRun":true,"types":["few"]}`)
	require.Equal(p.t, []any{"a.t0", "a.t1"}, plan["jobs"])
	p.post("/v1/repositories/a/tasks/t0/run?dryRun=true", `{}`)
	p.post("/v1/tasks/t1/run", "") // nobody has taken a place by asking
	p.post("/v1/tasks/t2/run", "")
	p.eventually("it is full", func() bool {
		resp, _ := p.do("POST", p.path("/v1/tasks/t0/run"), "")
		if resp.StatusCode != http.StatusTooManyRequests { // the door has not seen both yet
			p.post("/v1/tasks/t0/cancel", "")
			return false
		}
		return resp.Header.Get("Retry-After") != ""
	})
	require.NotEqual(p.t, "queued", p.state("t0"), "nothing was stored")
	p.post("/v1/queues/type-few/resume", `{}`)
	p.eventually("there is room again", func() bool {
		resp, _ := p.do("POST", p.path("/v1/tasks/t0/run"), "")
		return resp.StatusCode == http.StatusOK
	})
	p.is("t0", "succeeded")
}

func pause(p *place) {
	for what, set := range map[string]string{"queue": "/v1/queues/type-slow", "pool": "/v1/queues/pool-nodes", "all": "/v1/queues/all", "repository": "/v1/repositories/a"} {
		p.pauses(set)
		p.task(what, `{"type":"slow","run":true}`)
		if what == "queue" || what == "repository" {
			p.passes()
		} else { // what passes is in another namespace
			(&place{running: p.running, ns: p.ns + "-else", s: p.s}).passes()
		}
		require.Equal(p.t, "queued", p.state(what))
		p.post(set+"/resume", `{}`)
		p.is(what, "succeeded")
	}
}

func retry(p *place) {
	p.task("flaky", `{"type":"flaky","backoff":"10ms","run":true}`)
	p.is("flaky", "succeeded")
	require.Len(p.t, p.data("flaky", "history"), 2)
	p.task("bad", `{"type":"bad","run":true}`)
	p.is("bad", "failed")
	p.comes("/v1/repositories/a", "error")
	require.Equal(p.t, "queued", p.post("/v1/tasks/bad/retry", `{}`)["status"])
	p.is("bad", "failed")
	require.Contains(p.t, p.refused(409, "POST", "/v1/tasks/flaky/retry", `{}`), "succeeded")
}

func force(p *place) {
	p.task("held", `{"type":"hold","run":true}`)
	p.is("held", "running")
	p.refused(409, "POST", "/v1/tasks/held/reset", "")
	require.Equal(p.t, "running", p.state("held"))
	require.Equal(p.t, "pending", p.post("/v1/tasks/held/force-reset", "")["status"])
	p.eventually("the repository follows", func() bool { return p.ok("GET", "/v1/repositories/a", "")["state"] == "ready" })
	close(p.s.gate(p.ns + ".a.held"))
	p.eventually("what came of it is told, and not used", func() bool {
		types := p.running.eventsOf(p.path("/v1/repositories/a/tasks/held/events?limit=500"))
		return len(types) > 0 && strings.Contains(strings.Join(types, " "), task.EventDiscarded)
	})
	require.Equal(p.t, "pending", p.state("held"))
}

func stuck(p *place) {
	p.task("held", `{"type":"hold","run":true}`)
	p.is("held", "running")
	p.eventually("it has run for a second", func() bool {
		return len(p.post("/v1/tasks/clean-up?olderThan=1s&dryRun=true", "")["failed"].([]any)) == 1
	})
	require.Equal(p.t, "running", p.state("held"))
	require.Equal(p.t, []any{"a.held"}, p.post("/v1/tasks/clean-up?olderThan=1s", "")["failed"])
	require.Equal(p.t, "failed", p.state("held"))
	p.comes("/v1/repositories/a", "error")
	close(p.s.gate(p.ns + ".a.held"))
}

// batch sends one, and waits for its end; what it says on its way is how far it is.
func (p *place) batch(body string) map[string]any {
	p.t.Helper()
	resp, text := p.do("POST", "/v1/batches", body)
	require.Equal(p.t, http.StatusAccepted, resp.StatusCode, text)
	var op map[string]any
	p.eventually("the batch is done", func() bool {
		op = p.running.ok("GET", resp.Header.Get("Location"), "")
		require.Contains(p.t, op["metadata"], "progress")
		return op["done"] == true
	})
	return op["response"].(map[string]any)
}

func bulk(p *place) {
	p.pauses("/v1/repositories/a")
	for i := range 20 {
		p.task(fmt.Sprintf("t%d", i), `{"type":"noop"}`)
	}
	p.task("other", `{"type":"hold"}`)
	of := func(command, state, more string) string {
		return fmt.Sprintf(`{"machine":"task","command":%q,"filter":{"namespace":%q,"parent":"a","states":[%q],"labels":[".data.type=noop,.data.pool=nodes"]}%s}`, command, p.ns, state, more)
	}
	p.eventually("the index has all", func() bool {
		return p.running.ok("POST", "/v1/batches", of("run", "pending", `,"body":{},"dryRun":true`))["matched"] == 20.0
	})
	require.Equal(p.t, "pending", p.state("t3"))
	for _, step := range []struct{ command, from, to, more string }{{"run", "pending", "queued", `,"body":{}`}, {"cancel", "queued", "canceled", ""}, {"retry", "canceled", "queued", `,"body":{}`}} {
		done := p.batch(of(step.command, step.from, step.more))
		require.EqualValues(p.t, 20, done["applied"], "%v", done)
		for i := range 20 {
			require.Equal(p.t, step.to, p.state(fmt.Sprintf("t%d", i)))
		}
	}
	list := p.ok("GET", "/v1/repositories/a/tasks?label=.data.type!%3Dnoop", "")["items"].([]any)
	require.Len(p.t, list, 1)
	require.Equal(p.t, "other", list[0].(map[string]any)["id"])
	require.Equal(p.t, "pending", list[0].(map[string]any)["state"])
	require.NotContains(p.t, list[0], "labels")
	require.Empty(p.t, p.ok("GET", "/v1/repositories/a/tasks?label=.data.pool!%3Dnodes", "")["items"])
	require.Contains(p.t, p.refused(422, "GET", "/v1/repositories/a/tasks?label=.data.params", ""), "but by .data.type, .data.pool")
	p.post("/v1/repositories/a/tasks/other/delete", "")
	p.post("/v1/repositories/a/resume", `{}`)
	p.comes("/v1/repositories/a", "completed")
}

func dag(p *place) {
	p.task("first", `{"type":"noop"}`)
	p.task("second", `{"type":"noop","runAfter":["first"],"run":true}`)
	p.task("third", `{"type":"noop","runAfter":["first","second"],"run":true}`)
	p.passes()
	require.Equal(p.t, "queued", p.state("second"))
	p.post("/v1/tasks/first/run", "")
	for _, name := range []string{"first", "second", "third"} {
		p.is(name, "succeeded")
	}
	require.True(p.t, p.at("second", "startedAt").After(p.at("first", "endedAt")))
	require.True(p.t, p.at("third", "startedAt").After(p.at("second", "endedAt")))
	p.post("/v1/repositories/a/tasks/first/delete", "")
	p.is("first", "deleted")
	require.Contains(p.t, p.refused(422, "POST", "/v1/repositories/a/tasks/first/create", `{"type":"noop","runAfter":["third"]}`), "first after third after")
	require.Equal(p.t, "deleted", p.state("first"))
}

func unique(p *place) {
	p.pauses("/v1/repositories/a")
	for i := range 5 { // a node lets in one, also before it has seen what it has let in
		got := make(chan int, 2)
		for _, name := range []string{"first", "second"} {
			go func() {
				resp, _ := p.do("POST", p.path(fmt.Sprintf("/v1/repositories/a/tasks/%s%d/create", name, i)), fmt.Sprintf(`{"type":"noop","uniqueKey":"k%d","run":true}`, i))
				got <- resp.StatusCode
			}()
		}
		require.ElementsMatch(p.t, []int{http.StatusOK, http.StatusConflict}, []int{<-got, <-got})
	}
	p.task("one", `{"type":"noop","uniqueKey":"k","run":true}`)
	p.refused(409, "POST", "/v1/repositories/a/tasks/two/create", `{"type":"noop","uniqueKey":"k","run":true}`)
	p.post("/v1/repositories/a/resume", `{}`)
	p.is("one", "succeeded")
	p.eventually("its key is free", func() bool {
		resp, _ := p.do("POST", p.path("/v1/repositories/a/tasks/two/create"), `{"type":"noop","uniqueKey":"k","run":true}`)
		return resp.StatusCode < 300
	})
	p.is("two", "succeeded")
}

func snooze(p *place) {
	p.task("later", `{"type":"later","attempts":1,"run":true}`)
	p.is("later", "succeeded")
	require.Len(p.t, p.data("later", "history"), 2, "no attempt was used up")
	p.pauses("/v1/repositories/a")
	p.task("queued", `{"type":"noop","run":true}`)
	revision := p.post("/v1/repositories/a/tasks/queued/snooze", `{"for":"1h"}`)["revision"].(float64)
	p.ok("GET", fmt.Sprintf("/v1/tasks?minRevision=%.0f", revision), "") // whoever schedules sees it before the end of the pause
	p.post("/v1/repositories/a/resume", `{}`)
	p.passes()
	require.Equal(p.t, "queued", p.state("queued"))
	p.post("/v1/repositories/a/tasks/queued/snooze", `{"for":"1ms"}`)
	p.is("queued", "succeeded")
	p.refused(422, "POST", "/v1/repositories/a/tasks/queued/snooze", `{"for":"soon"}`)
}

// One of priority 9 that was queued more than eight aging intervals ago goes before one of priority 1 that is queued now.
func priority(p *place) {
	p.pauses("/v1/repositories/a")
	for _, n := range []int{9, 5, 1} {
		p.task(fmt.Sprintf("p%d", n), fmt.Sprintf(`{"type":"noop","priority":%d,"run":true}`, n))
	}
	p.passes() // whoever schedules has seen all three before the end of the pause
	p.post("/v1/repositories/a/resume", `{}`)
	for _, n := range []int{9, 5, 1} {
		p.is(fmt.Sprintf("p%d", n), "succeeded")
	}
	require.True(p.t, p.at("p1", "startedAt").Before(p.at("p5", "startedAt")))
	require.True(p.t, p.at("p5", "startedAt").Before(p.at("p9", "startedAt")))
	p.pauses("/v1/repositories/a")
	p.task("old", `{"type":"noop","priority":9,"run":true}`)
	old := p.at("old", "queuedAt")
	p.eventually("it has aged", func() bool { return time.Since(old) > 9500*time.Millisecond })
	p.task("urgent", `{"type":"noop","priority":1,"run":true}`)
	p.passes()
	p.post("/v1/repositories/a/resume", `{}`)
	p.is("urgent", "succeeded")
	require.True(p.t, p.at("old", "startedAt").Before(p.at("urgent", "startedAt")))
}

// What no route takes is told, and changes nothing.
func badInput(p *place) {
	p.task("one", `{"type":"noop"}`)
	for _, c := range []struct {
		status     int
		path, body string
	}{
		{422, "/v1/repositories/a/tasks/x/create", `{"type":"No Name"}`},
		{422, "/v1/repositories/a/tasks/x/create", `{}`},
		{422, "/v1/repositories/a/tasks/x/create", `{"type":"noop","priority":10}`},
		{422, "/v1/repositories/a/tasks/x/create", `{"type":"noop","timeout":"25h"}`},
		{422, "/v1/repositories/a/tasks/x/create", `{"type":"noop","params":[1]}`},
		{422, "/v1/repositories/a/tasks/x/create", `{"type":"noop","pool":"A b"}`},
		{422, "/v1/repositories/a/tasks/x/create", `{"type":"noop","runAfter":["nobody"]}`},
		{422, "/v1/repositories/a/tasks/x/create", `{"type":"noop","cron":"no"}`},
		{400, "/v1/repositories/a/tasks/x/create", `{`},
		{422, "/v1/repositories/a/tasks/x/create", `{"type":"noop","colour":"red"}`},
		{404, "/v1/repositories/none/tasks/x/create", `{"type":"noop"}`},
		{422, "/v1/tasks/one/run", `{"delay":"soon"}`},
		{422, "/v1/tasks/one/run", `{"stopBatch":true}`},
		{422, "/v1/tasks/one/run?repository=A.b", ``},
		{404, "/v1/tasks/one/run?repository=none", ``},
		{404, "/v1/tasks/none/run", ``},
		{404, "/v1/tasks/none/cancel", ``},
		{404, "/v1/tasks/none/reset", ``},
		{404, "/v1/tasks/none/force-reset", ``},
		{404, "/v1/tasks/none/retry", ``},
		{409, "/v1/tasks/one/retry", ``},
		{409, "/v1/tasks/one/cancel", ``},
		{409, "/v1/repositories/a/tasks/one/snooze", `{"for":"1s"}`},
		{422, "/v1/tasks/clean-up?olderThan=1ms", ``},
		{404, "/v1/repositories/none/run-all", ``},
		{422, "/v1/repositories/a/run-all", `{"onFailure":"explode"}`},
		{409, "/v1/queues/anything/configure", `{"limit":1}`},
		{422, "/v1/queues/type-a/configure", `{"limit":-1}`},
		{422, "/v1/queues/type-a/configure", `{"rate":1,"interval":"soon"}`},
		{422, "/v1/repositories/b/create", `{"url":"ext::sh -c id"}`},
		{422, "/v1/repositories/b/create", `{"weight":-1}`},
		{422, "/v1/batches", `{"machine":"task","command":"run","filter":{"parent":"No Name"}}`},
		{422, "/v1/batches", `{"machine":"tusk","command":"run"}`},
		{422, "/v1/batches", `{"machine":"task","command":"run","filter":{"labels":[".data.params=x"]}}`},
	} {
		resp, text := p.do("POST", p.path(c.path), c.body)
		if c.path == "/v1/batches" {
			resp, text = p.do("POST", c.path, c.body)
		}
		require.Equal(p.t, c.status, resp.StatusCode, "%s %s: %s", c.path, c.body, text)
		require.Contains(p.t, resp.Header.Get("Content-Type"), "problem+json", c.path)
	}
	for _, get := range []string{"/v1/tasks/none/documents", "/v1/tasks/one/document?name=x", "/v1/tasks/none/logs", "/v1/repositories/a/tasks/x", "/v1/repositories/b", "/v1/queues/type-a"} {
		p.refused(404, "GET", get, "")
	}
	require.Equal(p.t, "pending", p.state("one"))
	types := p.running.eventsOf(p.path("/v1/repositories/a/tasks/one/events?limit=500"))
	require.Equal(p.t, "task.created", types[0])
	for _, typ := range types[1:] {
		require.Equal(p.t, machines.EventRefused, typ)
	}
}
