package tasks_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client/worker"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/server/config"
)

// A worker elsewhere, with the rights of its role, writes into the log of a task and says how far it is.
func TestAWorkerElsewhereSaysHowItGoes(t *testing.T) {
	t.Parallel()
	r := start(t, nil, func(c *config.Config) {
		users := slices.Grow(c.NATS.Users, 1)[:1]
		users[0].Name, users[0].Password, users[0].Role = "gpu", "secret-of-gpu", "work"
		c.NATS.Users = users
	})
	nc, err := nats.Connect(r.nats, nats.UserInfo("gpu", "secret-of-gpu"))
	require.NoError(t, err)
	defer nc.Close()
	w, err := worker.New(worker.Options{NC: nc, APIPrefix: "$JS.INSTAR.API", Name: "w-1"})
	require.NoError(t, err)
	seen := make(chan struct{})
	worker.Handle(w, worker.Effect{Machine: "task", Name: "run", Done: "done", Route: "gpu"}, func(ctx context.Context, t worker.Task[task.Run]) (task.Result, error) {
		t.Log("two lines\nof the log")
		t.Progress(40, "halfway")
		select {
		case <-seen:
		case <-ctx.Done():
		}
		return task.Result{Summary: "done"}, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() { cancel(); require.NoError(t, <-ended) }()
	r.ok("POST", "/v1/repositories/a/create", `{}`)
	r.ok("POST", "/v1/repositories/a/tasks/one/create", `{"type":"train","pool":"gpu","run":true}`)
	require.Eventually(t, func() bool {
		e := r.ok("GET", "/v1/repositories/a/tasks/one", "")
		p, _ := e["data"].(map[string]any)["progress"].(map[string]any)
		return p["percent"] == 40.0 && p["message"] == "halfway" && p["worker"] == "w-1"
	}, time.Minute, 20*time.Millisecond, "how far it is")
	require.Eventually(t, func() bool {
		resp, log := r.do("GET", "/v1/tasks/one/logs?follow=false", "")
		return resp.StatusCode == http.StatusOK && strings.Contains(log, `"two lines"`) && strings.Contains(log, `"of the log"`) && strings.Contains(log, `"attempt":"`)
	}, time.Minute, 20*time.Millisecond, "its log")
	close(seen)
	r.comes("/v1/repositories/a/tasks/one", "succeeded")
}
