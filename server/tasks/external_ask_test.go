package tasks_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// A worker that nobody tells whether its task is still wanted leaves it for its next delivery: acknowledged, it would stand as running until its time is over.
func TestAWorkerThatCannotAskLeavesItsTask(t *testing.T) {
	t.Parallel()
	const task = `{"machine":"task","namespace":"default","parent":"a","id":"one","effect":"run","attempt":"x","try":1,"data":{"type":"greet","params":{"name":"you"}}}`
	for name, program := range exampleWorkers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := streamstest.Start(t, embedded.Options{Profile: embedded.OS, Listen: "127.0.0.1:0", Open: true})
			js, err := jetstream.New(env.NC)
			require.NoError(t, err)
			_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COMMANDS", Subjects: []string{"instar.cmd.>"}})
			require.NoError(t, err)
			effects, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EFFECTS", Subjects: []string{"instar.fx.>"}, Retention: jetstream.WorkQueuePolicy})
			require.NoError(t, err)
			_, err = effects.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "fx-task-run=greeters", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 5 * time.Second})
			require.NoError(t, err)
			var asked, kept atomic.Int64
			_, err = env.NC.Subscribe("instar.api.get.task.default.a.one", func(m *nats.Msg) {
				n := asked.Add(1)
				if n == 1 {
					_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Service-Error-Code": {"503"}, "Nats-Service-Error": {"try again"}}, Data: []byte(`{"status":503}`)})
					return
				}
				if info, err := effects.Info(t.Context()); err == nil && n == 2 {
					kept.Store(int64(info.State.Msgs)) // #nosec G115 -- one
				}
				_ = m.Respond([]byte(`{"machine":"task","state":"running","effects":{"run":{"id":"x"}}}`))
			})
			require.NoError(t, err)
			_, err = js.Publish(t.Context(), "instar.fx.task.run.default.a.one", []byte(task))
			require.NoError(t, err)
			runs(t, program(t, env.Server.ClientURL()))
			require.Eventually(t, func() bool {
				info, err := effects.Info(t.Context())
				return err == nil && info.State.Msgs == 0
			}, 90*time.Second, 20*time.Millisecond)
			require.EqualValues(t, 1, kept.Load(), "it was there when it was asked for again")
			m, err := js.Stream(t.Context(), "COMMANDS")
			require.NoError(t, err)
			done, err := m.GetLastMsgForSubject(t.Context(), "instar.cmd.task.default.a.one.done")
			require.NoError(t, err)
			require.Contains(t, string(done.Data), "hello you")
		})
	}
}
