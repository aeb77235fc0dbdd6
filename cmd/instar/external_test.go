package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/server/config"
)

// With the gateway external every task goes to workers elsewhere, in any language, as the AsyncAPI document says.
func TestAWorkerOfOnesOwnTakesAllTasks(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway = config.GatewayExternal })
	nc, err := nats.Connect(w.nats)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	consumer := func(effect string) jetstream.Consumer {
		var cons jetstream.Consumer
		require.Eventually(t, func() bool { cons, err = js.Consumer(t.Context(), "EFFECTS", "fx-service-"+effect); return err == nil }, 30*time.Second, 10*time.Millisecond)
		return cons
	}
	send := func(command string, body any) {
		raw, err := json.Marshal(body)
		require.NoError(t, err)
		_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: "instar.cmd.service.default.web." + command, Data: raw, Header: nats.Header{"Nats-Msg-Id": {"service/default.web/" + nuid.Next()}}})
		require.NoError(t, err)
	}
	take := func(effect, done string, result any) machines.Task {
		m, err := consumer(effect).Next(jetstream.FetchMaxWait(30 * time.Second))
		require.NoError(t, err)
		var task machines.Task
		require.NoError(t, json.Unmarshal(m.Data(), &task))
		data, err := json.Marshal(result)
		require.NoError(t, err)
		send(done, machines.Report{Attempt: task.Attempt, Data: data})
		require.NoError(t, m.Ack())
		return task
	}

	w.must("service", "create", "web", "--image", "anything")
	for _, image := range []string{"anything", "another", "third"} { // the one that is built in takes none of them
		if image != "anything" {
			w.must("service", "update", "web", "--image", image)
		}
		task := take("apply", service.ReportApplied, service.Applied{UID: "mine", Generation: 1})
		var apply service.ApplyTask
		require.NoError(t, json.Unmarshal(task.Data, &apply))
		require.Equal(t, image, apply.Spec.Image)
		send(service.ReportObserved, machines.Report{Data: json.RawMessage(`{"exists":true,"uid":"mine","generation":1,"observedGeneration":1,"ready":"True","specHash":"` + apply.Hash + `"}`)})
		w.must("service", "wait", "web", "--for", "state=READY", "--timeout", "60s")
	}
	w.must("service", "delete", "web", "-y")
	take("delete", service.ReportDeleteTaken, nil)
	send(service.ReportGone, machines.Report{})
	w.must("service", "wait", "web", "--for", "state=DELETED", "--timeout", "60s")

	// The control plane keeps the consumer: one that is taken away is there again.
	require.NoError(t, js.DeleteConsumer(t.Context(), "EFFECTS", "fx-service-apply"))
	consumer("apply")
}
