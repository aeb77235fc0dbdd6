package backlog

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

func TestPendingOfDurableConsumers(t *testing.T) {
	t.Parallel()
	names := streams.Names{}
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS}).Ensure(streams.Plan{Names: names, Events: 1 << 20})
	nc, js := e.NC, e.JS
	for i := range 3 {
		_, err := js.Publish(t.Context(), names.Event("thing", "default.a", "made"), []byte{byte('0' + i)})
		require.NoError(t, err)
	}
	c, err := js.CreateConsumer(t.Context(), streams.EventStream, jetstream.ConsumerConfig{Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	_, err = js.CreateConsumer(t.Context(), streams.EventStream, jetstream.ConsumerConfig{InactiveThreshold: time.Minute})
	require.NoError(t, err)
	_, err = js.CreateConsumer(t.Context(), streams.CommandStream, jetstream.ConsumerConfig{Durable: "p00", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	batch, err := c.Fetch(2) // one of them is acknowledged, one is not
	require.NoError(t, err)
	for m := range batch.Messages() {
		if string(m.Data()) == "0" {
			require.NoError(t, m.DoubleAck(t.Context()))
		}
	}

	things, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "things"})
	require.NoError(t, err)
	_, err = things.Put(t.Context(), "a", make([]byte, 100))
	require.NoError(t, err)
	p := &Backlog{js: js, names: names, within: 10 * time.Second}
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(p))
	asked := nc.Stats().OutMsgs
	p.once(t.Context())
	require.Equal(t, asked+9, nc.Stats().OutMsgs, "two requests for each stream, however many consumers it has, and one for all buckets")
	for range 3 { // a scrape asks nobody
		families, err := registry.Gather()
		require.NoError(t, err)
		shown := map[string]map[string]float64{}
		for _, family := range families {
			of := map[string]float64{}
			for _, m := range family.GetMetric() {
				of[m.GetLabel()[0].GetName()+"="+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
			shown[family.GetName()] = of
		}
		require.Equal(t, map[string]float64{"consumer=p00": 0, "consumer=reader": 2}, shown["instar_consumer_pending"])
		require.Greater(t, shown["instar_stream_bytes"]["stream=EVENTS"], 100.)
		require.Zero(t, shown["instar_stream_bytes"]["stream=COMMANDS"])
		require.Greater(t, shown["instar_bucket_bytes"]["bucket=things"], 100.)
		require.Equal(t, map[string]float64{"stream=EVENTS": 1 << 20}, shown["instar_stream_limit_bytes"])
		require.Greater(t, shown["instar_stream_oldest_seconds"]["stream=EVENTS"], 0.)
		require.Zero(t, shown["instar_stream_oldest_seconds"]["stream=DEAD_LETTERS"])
	}
	require.Equal(t, asked+9, nc.Stats().OutMsgs)
}
