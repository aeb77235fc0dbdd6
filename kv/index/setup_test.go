package index

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fill writes count keys k0 … with a value of an entity's size.
func fill(t testing.TB, n *kvtest.Node, bucket string, count int) {
	js, err := jetstream.New(n.NC, jetstream.WithPublishAsyncMaxPending(4096))
	require.NoError(t, err)
	for i := range count {
		_, err := js.PublishMsgAsync(&nats.Msg{Subject: fmt.Sprintf("$KV.%s.default.k%d", bucket, i*7919%count), Data: document(i)}, jetstream.WithStallWait(time.Minute))
		require.NoError(t, err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-t.Context().Done():
	}
}

// document is a value of the size and the shape of a stored entity.
func document(i int) []byte {
	return fmt.Appendf(nil, `{"schema":1,"machine":"instance","namespace":"default","id":"k%d","state":"%s","version":%d,"generation":3,`+
		`"since":"2025-01-02T03:04:05.678901234Z","createdAt":"2025-01-01T00:00:00Z","updatedAt":"2025-01-02T03:04:05.678901234Z",`+
		`"labels":{"team":"t%d","env":"prod"},"data":{"image":"registry.example/team/app:1.2.3","ports":[{"name":"http","port":8080}],`+
		`"note":"some \"quoted\" text of no importance"},"conditions":[{"type":"Ready","status":"True","reason":"Probed"}],"mark":123456,"lastEvent":1234567,`+
		`"commands":[{"id":"0190a8c5-1111-7000-8000-00000000abcd","seq":77,"result":"applied","state":"ready","version":3,"hash":"abcdefabcdef"}]}`,
		i, [...]string{"active.healthy", "active.unhealthy", "starting", "stopped"}[i%4], i, i%100)
}

func describe(_ string, value []byte) (Meta, error) { return DescribeJSON(value) }

// run starts an index and waits until it is ready.
func run(t testing.TB, n *kvtest.Node, bucket string) *Index {
	ix := New(n.JS, bucket, describe, Options{})
	start(t, ix)
	<-ix.Ready()
	return ix
}

func start(t testing.TB, ix *Index) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ix.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}
