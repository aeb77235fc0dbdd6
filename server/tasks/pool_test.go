package tasks_test

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client/worker"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/server/tasks"
)

// Workers of a pool do its tasks beside those that the node does, and what they bring for a task that was canceled meanwhile is told as discarded.
func TestAPoolIsForWorkersElsewhere(t *testing.T) {
	t.Parallel()
	r := start(t, tasks.Runner)
	nc, err := nats.Connect(r.nats)
	require.NoError(t, err)
	defer nc.Close()
	w, err := worker.New(worker.Options{NC: nc, Name: "w-1"})
	require.NoError(t, err)
	worker.Handle(w, worker.Effect{Machine: "task", Name: "run", Done: "done", Route: "gpu"}, func(_ context.Context, t worker.Task[task.Run]) (task.Result, error) {
		return task.Result{Worker: "w-1", Summary: t.Data.Type}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() { cancel(); require.NoError(t, <-ended) }()

	r.ok("POST", "/v1/repositories/a/create", `{"concurrency":4}`)
	r.ok("POST", "/v1/repositories/a/tasks/there/create", `{"type":"anything","pool":"gpu","run":true}`)
	r.ok("POST", "/v1/repositories/a/tasks/here/create", `{"type":"lines","pool":"nodes","run":true}`)
	r.comes("/v1/repositories/a/tasks/there", "succeeded")
	r.comes("/v1/repositories/a/tasks/here", "failed") // there is no url
	e := r.ok("GET", "/v1/repositories/a/tasks/there", "")
	require.Equal(t, "anything", e["data"].(map[string]any)["result"].(map[string]any)["summary"])

	// A worker that does not look whether it is still wanted. The pool of another name has nobody else.
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	r.ok("POST", "/v1/repositories/a/tasks/late/create", `{"type":"anything","pool":"tpu","run":true}`)
	var queue jetstream.Consumer
	require.Eventually(t, func() (there bool) {
		queue, err = js.Consumer(t.Context(), "EFFECTS", "fx-task-run=tpu")
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	got, err := queue.Next()
	require.NoError(t, err)
	r.comes("/v1/repositories/a/tasks/late", "running")
	attempt := r.ok("GET", "/v1/repositories/a/tasks/late", "")["data"].(map[string]any)["attemptId"].(string)
	r.ok("POST", "/v1/repositories/a/tasks/late/cancel", "")
	for range 2 {
		m := nats.NewMsg("instar.cmd.task.default.a.late.done")
		m.Data = []byte(`{"attempt":"` + attempt + `","data":{"summary":"late"}}`)
		m.Header.Set("Nats-Msg-Id", "task/default.a.late/"+rand.Text())
		_, err = js.PublishMsg(t.Context(), m)
		require.NoError(t, err)
	}
	require.NoError(t, got.DoubleAck(t.Context()))
	require.Eventually(t, func() bool {
		e := r.ok("GET", "/v1/repositories/a/tasks/late", "")
		require.Equal(t, "canceled", e["state"])
		last := e["data"].(map[string]any)["history"].([]any)
		require.Len(t, last, 1)
		return last[0].(map[string]any)["discarded"] == true
	}, 20*time.Second, 20*time.Millisecond, "the result is told")
	require.Eventually(t, func() bool {
		return slices.Equal([]string{"task.created", "task.queued", "task.started", "task.canceled", "task.result.discarded"}, r.events("/v1/repositories/a/tasks/late"))
	}, 20*time.Second, 20*time.Millisecond, "%s", r.events("/v1/repositories/a/tasks/late"))
}

// Tasks of a pool for which nobody asks stay queued, say so, and leave every limit to others; they start when a worker comes.
func TestTasksOfAPoolWithoutWorkersWait(t *testing.T) {
	t.Parallel()
	r := start(t, tasks.Runner)
	r.ok("POST", "/v1/queues/cluster/configure", `{"limit":2}`)
	r.ok("POST", "/v1/repositories/a/create", `{"concurrency":2}`)
	alone := []string{"one", "two", "three"}
	for _, id := range alone {
		r.ok("POST", "/v1/repositories/a/tasks/"+id+"/create", `{"type":"anything","pool":"misspelled","priority":1,"run":true}`)
	}
	r.ok("POST", "/v1/repositories/a/tasks/here/create", `{"type":"lines","pool":"nodes","priority":9,"run":true}`)
	r.comes("/v1/repositories/a/tasks/here", "failed") // there is no url: it has run
	nc, err := nats.Connect(r.nats)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err = js.Consumer(t.Context(), "EFFECTS", "fx-task-run=misspelled")
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	for _, id := range alone {
		why := r.why(id)
		require.Equal(t, "queued", why["state"])
		require.Equal(t, "no worker of pool misspelled asks for tasks", why["why"])
		require.Equal(t, []string{"task.created", "task.queued"}, r.events("/v1/repositories/a/tasks/"+id))
	}

	w, err := worker.New(worker.Options{NC: nc})
	require.NoError(t, err)
	worker.Handle(w, worker.Effect{Machine: "task", Name: "run", Done: "done", Route: "misspelled"}, func(context.Context, worker.Task[task.Run]) (task.Result, error) {
		return task.Result{}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() { cancel(); require.NoError(t, <-ended) }()
	for _, id := range alone {
		r.comes("/v1/repositories/a/tasks/"+id, "succeeded")
	}
}
