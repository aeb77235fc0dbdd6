package tasks_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/tasks"
)

// The job_id that an answer hands out names the task at every route of tasks.
func TestAJobIDNamesATaskEverywhere(t *testing.T) {
	t.Parallel()
	r := start(t, tasks.Runner)
	for _, repo := range []string{"a", "b"} { // one of the name alone would be ambiguous
		r.ok("POST", "/v1/repositories/"+repo+"/create", `{}`)
		r.ok("POST", "/v1/repositories/"+repo+"/tasks/one/create", `{"type":"lines"}`)
	}
	job := r.ok("POST", "/v1/tasks/one/run?repository=b", `{"delay":"1h"}`)["job_id"].(string)
	require.Equal(t, "b.one", job)
	require.Equal(t, "queued", r.ok("GET", "/v1/tasks/"+job, "")["state"])
	require.Equal(t, "b", r.ok("GET", "/v1/tasks/"+job, "")["parent"])
	require.Equal(t, job, r.why(job)["job_id"])
	require.Equal(t, true, r.ok("POST", "/v1/tasks/"+job+"/run", "")["already"])
	require.Equal(t, "canceled", r.ok("POST", "/v1/tasks/"+job+"/cancel?repository=b", "")["status"])
	require.Equal(t, "queued", r.ok("POST", "/v1/tasks/"+job+"/retry", `{"delay":"1h"}`)["status"])
	require.Empty(t, r.ok("GET", "/v1/tasks/"+job+"/documents", "")["documents"])
	_, log := r.do("GET", "/v1/tasks/"+job+"/logs?follow=false", "")
	require.Contains(t, log, "event: ")
	require.Equal(t, "pending", r.ok("POST", "/v1/tasks/"+job+"/force-reset", "")["status"])
	require.Contains(t, r.refused(422, "GET", "/v1/tasks/"+job+"?repository=a", ""), "another one than that of the path")
	require.Contains(t, r.refused(422, "GET", "/v1/tasks/b.one.two", ""), "two of them with a dot between")
	require.Contains(t, r.refused(422, "GET", "/v1/tasks/.one", ""), "path.id")
	require.Contains(t, r.refused(422, "POST", "/v1/tasks/one/run", ""), "several repositories")
	r.refused(404, "GET", "/v1/tasks/c.one", "")
}

// What no node could ever do, and a time that never comes, is refused before anything is stored.
func TestWhatCouldNeverRunIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t, tasks.Runner)
	r.ok("POST", "/v1/repositories/a/create", `{}`)
	for body, why := range map[string]string{
		`{"type":"greet"}`:                                             `no task of type \"greet\" is done here`,
		`{"type":"greet","pool":"nodes","run":true}`:                   "needs the pool of its workers",
		`{"type":"http"}`:                                              "the parameters of http: the URL",
		`{"type":"http","params":{"url":"ftp://a/"}}`:                  "the parameters of http: the URL",
		`{"type":"http","params":{"url":"http://a/","verb":"GET"}}`:    "verb",
		`{"type":"exec","params":{}}`:                                  "program is missing",
		`{"type":"exec","params":{"program":7}}`:                       "the parameters of exec",
		`{"type":"lines","params":{"deep":1}}`:                         "deep",
		`{"type":"lines","cron":"0 0 0 1 1 * 2010"}`:                   "no time that is still to come",
		`{"type":"lines","cron":"0 0 30 2 *"}`:                         "never comes",
		`{"type":"lines","cron":"0 3 * *"}`:                            "is not a cron expression",
		`{"type":"lines","cron":"0 3 * * *","timeZone":"Europe/None"}`: "is not a time zone",
	} {
		require.Contains(t, r.refused(422, "POST", "/v1/repositories/a/tasks/x/create", body), why, body)
	}
	r.refused(404, "GET", "/v1/repositories/a/tasks/x", "")
	require.Contains(t, r.refused(422, "POST", "/v1/repositories/b/create", `{"analyses":["lines","greet"]}`), "greet")
	r.refused(404, "GET", "/v1/repositories/b", "")
	require.Contains(t, r.refused(422, "POST", "/v1/repositories/a/configure", `{"analyses":["http"]}`), "the parameters of http")

	require.Contains(t, r.refused(422, "POST", "/v1/repositories/b/create", `{"analyses":["lines"]}`), "need a url")
	require.Contains(t, r.refused(422, "POST", "/v1/repositories/a/configure", `{"analyses":["lines"]}`), "need a url")

	r.ok("POST", "/v1/repositories/a/tasks/x/create", `{"type":"lines"}`)
	require.Contains(t, r.refused(422, "POST", "/v1/repositories/a/tasks/x/schedule", `{"cron":"0 0 0 1 1 * 2010"}`), "no time that is still to come")
	require.NotContains(t, r.events("/v1/repositories/a/tasks/x"), "task.scheduled")
	r.ok("POST", "/v1/repositories/a/tasks/y/create", `{"type":"greet","pool":"greeters"}`)
}
