package presence

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each worker asks in its own way, and whoever asks in none is not there.
func TestWhoAsksForTasks(t *testing.T) {
	t.Parallel()
	nc, js := store(t)
	wake := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	w := New(ctx, nc, js, "EFFECTS", wake)
	w.present, w.every = 2*time.Second, 20*time.Millisecond // a sign is seen while it counts, also on a slow machine
	defer w.Close()
	defer cancel()
	there := func(queue, why string) {
		t.Helper()
		require.Eventually(t, func() bool { return w.Asked(queue) }, 10*time.Second, 5*time.Millisecond, "%s: %s", queue, why)
	}
	away := func(queue, why string) {
		t.Helper()
		require.Eventually(t, func() bool { return !w.Asked(queue) && w.known(queue) }, 10*time.Second, 5*time.Millisecond, "%s: %s", queue, why)
	}

	require.False(t, w.Asked("waits"), "nothing is known yet")
	away("waits", "its consumer is not there")
	queue := func(name string) jetstream.Consumer {
		c, err := js.CreateConsumer(t.Context(), "EFFECTS", jetstream.ConsumerConfig{Durable: name, FilterSubject: "fx." + name, AckPolicy: jetstream.AckExplicitPolicy})
		require.NoError(t, err)
		return c
	}
	waits, looks, batch := queue("waits"), queue("looks"), queue("batch")
	away("waits", "nobody asks")

	batches, err := waits.Fetch(1, jetstream.FetchMaxWait(4*time.Second))
	require.NoError(t, err)
	there("waits", "a request waits")
	for range batches.Messages() {
	}
	away("waits", "the request is over")

	away("looks", "nobody asks")
	require.Eventually(t, func() bool { return w.subscribed("looks") }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, nc.Flush())
	for len(wake) > 0 {
		<-wake
	}
	_, err = looks.FetchNoWait(1)
	require.NoError(t, err)
	select {
	case <-wake:
	case <-time.After(5 * time.Second):
		require.Fail(t, "a request that does not wait wakes nobody")
	}
	there("looks", "a request that did not wait has come")
	away("looks", "it does not come again")

	for i := range 3 {
		_, err = js.Publish(t.Context(), "fx.batch", fmt.Append(nil, i))
		require.NoError(t, err)
	}
	got, err := batch.Fetch(3, jetstream.FetchMaxWait(time.Second))
	require.NoError(t, err)
	there("batch", "tasks were delivered")
	away("batch", "it works on them, and asks for nothing")
	for m := range got.Messages() {
		require.NoError(t, m.DoubleAck(t.Context()))
	}
	there("batch", "one was acked")
	w.Forget("batch")
	require.False(t, w.Asked("batch"), "it is looked at anew")
}

func (w *Watch) known(consumer string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.queues[consumer].looked.IsZero()
}

func (w *Watch) subscribed(consumer string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queues[consumer].sub != nil
}

func store(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Profile: embedded.Interval})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	nc, err := streams.Connect(streams.ConnectOptions{Server: s, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EFFECTS", Subjects: []string{"fx.>"}, Retention: jetstream.WorkQueuePolicy})
	require.NoError(t, err)
	return nc, js
}
