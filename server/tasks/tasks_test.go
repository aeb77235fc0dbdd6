package tasks_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/tasks"
)

func origin(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not here")
	}
	dir := filepath.Join(t.TempDir(), "shop")
	script := `set -e; mkdir "$0"; cd "$0"; git init -q -b main; printf 'package main\n\nfunc main() {}\n' > main.go; printf 'module example.com/shop\n' > go.mod
git add .; git -c user.name=a -c user.email=a@example.com commit -qm one`
	out, err := exec.Command("/bin/sh", "-c", script, dir).CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

func TestARepositoryIsAnalysedOverHTTP(t *testing.T) {
	t.Parallel()
	r := start(t, tasks.Runner)
	r.ok("POST", "/v1/repositories/shop/create", `{"url":"`+origin(t)+`","analyses":["languages","lines"]}`)
	r.comes("/v1/repositories/shop", "ready")

	all := r.ok("POST", "/v1/repositories/shop/run-all", `{"onFailure":"stop"}`)
	require.EqualValues(t, 2, all["enqueued"])
	require.Equal(t, []any{"shop.languages", "shop.lines"}, all["jobs"])
	r.comes("/v1/repositories/shop", "completed")
	again := r.ok("POST", "/v1/repositories/shop/run-all", ``)
	require.EqualValues(t, 0, again["enqueued"])
	require.Len(t, again["skipped"], 2)

	documents := r.ok("GET", "/v1/tasks/languages/documents", "")["documents"].([]any)
	require.NotEmpty(t, documents)
	name := documents[0].(map[string]any)["name"].(string)
	resp, text := r.do("GET", "/v1/tasks/languages/document?name="+filepath.Base(name), "")
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	require.Contains(t, text, "Go")
	require.Contains(t, r.refused(404, "GET", "/v1/tasks/languages/document?name=other", ""), "has "+filepath.Base(name))
	require.Contains(t, r.refused(422, "GET", "/v1/tasks/languages/document", ""), "is needed: the last success of the task has "+filepath.Base(name))
	require.Zero(t, r.ok("POST", "/v1/repositories/shop/run-all?dryRun", `{"types":["languages"]}`)["enqueued"])

	_, log := r.do("GET", "/v1/tasks/languages/logs?follow=false", "")
	require.Contains(t, log, "event: log")
	require.Contains(t, log, "languages: attempt 1 of 3")

	reset := r.ok("POST", "/v1/tasks/languages/reset", "")
	require.Equal(t, "pending", reset["status"])
	r.comes("/v1/repositories/shop", "ready")
	require.Empty(t, r.ok("GET", "/v1/tasks/languages/documents", "")["documents"])
}

func TestDoorsRefuseWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	r := start(t, tasks.Runner)
	r.refused(404, "POST", "/v1/repositories/none/tasks/a/create", `{"type":"http"}`)
	r.ok("POST", "/v1/repositories/a/create", `{}`)
	r.ok("POST", "/v1/queues/type-http/configure", `{"cap":1}`)
	require.Contains(t, r.refused(422, "POST", "/v1/repositories/a/tasks/x/create", `{"type":"http","runAfter":["y"]}`), "no task y")
	require.Contains(t, r.refused(422, "POST", "/v1/repositories/a/tasks/x/create", `{"type":"http","runAfter":["x"]}`), "after itself: x after x")
	r.ok("POST", "/v1/repositories/a/tasks/one/create", `{"type":"http","params":{"url":"http://127.0.0.1:1/"},"run":true,"delay":"1h","uniqueKey":"u"}`)
	require.Eventually(t, func() bool {
		resp, _ := r.do("POST", "/v1/repositories/a/tasks/two/create", `{"type":"http","params":{"url":"http://127.0.0.1:1/"},"run":true,"notBefore":"2100-01-01T00:00:00Z"}`)
		if resp.StatusCode == http.StatusTooManyRequests {
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
			return true
		}
		_, _ = r.do("POST", "/v1/repositories/a/tasks/two/delete", "")
		return false
	}, 20*time.Second, 50*time.Millisecond, "the queue is full")
	require.Eventually(t, func() bool { // the place that one was given fills the queue before it is seen to be queued, and under which key
		resp, _ := r.do("POST", "/v1/repositories/a/tasks/three/create", `{"type":"exec","params":{"program":"x"},"run":true,"delay":"1h","uniqueKey":"u"}`)
		_, _ = r.do("POST", "/v1/repositories/a/tasks/three/delete", "")
		return resp.StatusCode == http.StatusConflict
	}, 20*time.Second, 20*time.Millisecond, "the key is taken")

	again := r.ok("POST", "/v1/tasks/one/run", "")
	require.Equal(t, true, again["already"])
	require.Equal(t, "a.one", again["job_id"])
	require.Equal(t, "queued", again["status"])
	r.refused(404, "POST", "/v1/tasks/none/run", "")
	r.refused(422, "POST", "/v1/tasks/clean-up?olderThan=soon", "")
	require.Empty(t, r.ok("POST", "/v1/tasks/clean-up?olderThan=1s", "")["failed"])
	require.Equal(t, "canceled", r.ok("POST", "/v1/tasks/one/cancel", "")["status"])
	require.Eventually(t, func() bool {
		plan := r.ok("POST", "/v1/batches", `{"machine":"task","command":"retry","body":{},"filter":{"parent":"a","states":["canceled"]},"dryRun":true}`)
		return plan["matched"] == 1.0
	}, 20*time.Second, 20*time.Millisecond)
}

// Only what the configuration names is run, and cloned from this machine.
func TestTheConfigurationSaysWhatIsRun(t *testing.T) {
	t.Parallel()
	allowed := t.TempDir()
	program := filepath.Join(allowed, "count")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"counts $1\"; echo '# two' > \"$INSTAR_DOCUMENTS/count.md\"\n"), 0o700))
	r := start(t, tasks.Runner, func(c *config.Config) {
		c.Tasks.Local = []string{allowed}
		c.Tasks.Programs = map[string]config.Program{"count": {Path: program, Arguments: true}, "bare": {Path: program}}
	})
	r.ok("POST", "/v1/repositories/a/create", `{"concurrency":3}`)
	r.ok("POST", "/v1/repositories/a/tasks/listed/create", `{"type":"exec","params":{"program":"count","args":["lines"]},"run":true}`)
	r.ok("POST", "/v1/repositories/a/tasks/unlisted/create", `{"type":"exec","params":{"program":"`+program+`"},"run":true}`)
	r.ok("POST", "/v1/repositories/a/tasks/arguments/create", `{"type":"exec","params":{"program":"bare","args":["x"]},"run":true}`)
	r.comes("/v1/repositories/a/tasks/listed", "succeeded")
	_, log := r.do("GET", "/v1/tasks/listed/logs?follow=false", "")
	require.Contains(t, log, "counts lines")
	_, text := r.do("GET", "/v1/tasks/listed/document?name=count.md", "")
	require.Equal(t, "# two\n", text)
	for task, why := range map[string]string{"unlisted": "is not in the configuration", "arguments": "takes no arguments"} {
		r.comes("/v1/repositories/a/tasks/"+task, "failed")
		e := r.ok("GET", "/v1/repositories/a/tasks/"+task, "")
		require.Contains(t, e["lastError"].(map[string]any)["message"], why)
		require.Len(t, e["data"].(map[string]any)["history"], 1, "it is not tried again")
	}
	r.ok("POST", "/v1/repositories/b/create", `{"url":"`+origin(t)+`"}`)
	r.comes("/v1/repositories/b", "error")
}
