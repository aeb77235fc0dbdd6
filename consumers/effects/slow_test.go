package effects

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// handed is a delivery by which the test sees what the server is told of it.
type handed struct {
	jetstream.Msg
	data            []byte
	underWay, acked atomic.Int64
}

func (m *handed) Data() []byte      { return m.data }
func (m *handed) InProgress() error { m.underWay.Add(1); return nil }

func (m *handed) DoubleAck(context.Context) error { m.acked.Add(1); return nil }

// The bucket of an entity may have no leader for longer than a delivery may take. The server is told meanwhile that the task is under way: else it would deliver it once more, and both
// would find that the entity waits for it.
func TestATaskWhoseBucketIsSlowIsNotDeliveredTwice(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true}) // without streams: the answers are the test's
	require.NoError(t, err)
	s.Start()
	t.Cleanup(s.Shutdown)
	require.True(t, s.ReadyForConnections(10*time.Second))
	nc, err := nats.Connect("", nats.InProcessServer(s))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	task, err := json.Marshal(machines.Task{Machine: "thing", Namespace: "default", ID: "a", Effect: "work", Attempt: "work-1-1"})
	require.NoError(t, err)
	m := &handed{data: task}
	const several = 3
	stream := streams.BucketStream(streams.Names{}.Bucket("things"))
	for verb, answer := range map[string]string{"MSG.GET": `{"error":{"code":404,"err_code":10037}}`, "INFO": `{"total":0}`} {
		_, err := nc.Subscribe("$JS.API.STREAM."+verb+"."+stream, func(q *nats.Msg) {
			if m.underWay.Load() >= several { // each question is put again
				_ = q.Respond([]byte(answer))
			}
		})
		require.NoError(t, err)
	}
	deps := consumers.Deps{NC: nc}
	k := &kind{w: &Workers{Deps: deps.WithDefaults(), AckWait: 30 * time.Millisecond}, m: consumertest.Things, fx: consumertest.Things.Effects[0]}
	require.NoError(t, k.task(t.Context(), m))
	require.EqualValues(t, 1, m.acked.Load(), "nobody waits for it")
	require.GreaterOrEqual(t, m.underWay.Load(), int64(several))
}
