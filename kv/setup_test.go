package kv

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a real server over a temporary directory. It can be stopped and started again on the same port.
type node struct {
	opts server.Options
	srv  *server.Server
	nc   *nats.Conn
	js   jetstream.JetStream
}

func setup(t testing.TB) *node {
	n := &node{opts: server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}}
	n.start(t)
	nc, err := nats.Connect(n.srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	require.NoError(t, err)
	n.nc = nc
	n.js, err = jetstream.New(nc)
	require.NoError(t, err)
	t.Cleanup(func() {
		closed := nc.StatusChanged(nats.CLOSED)
		nc.Close()
		<-closed
		n.stop()
	})
	return n
}

func (n *node) start(t testing.TB) {
	opts := n.opts
	srv, err := server.NewServer(&opts)
	require.NoError(t, err)
	srv.Start()
	require.True(t, srv.ReadyForConnections(10*time.Second))
	n.srv, n.opts.Port = srv, srv.Addr().(*net.TCPAddr).Port
}

func (n *node) stop() {
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
}

// bucket creates the stream of a bucket as the program does, not as nats.go would.
func (n *node) bucket(t testing.TB, name string) {
	config := jetstream.StreamConfig{
		Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"}, MaxMsgsPerSubject: 1,
		Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowMsgTTL: true,
	}
	_, err := n.js.CreateStream(t.Context(), config)
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); { // one of the name was deleted, and its files are still going
		_, err = n.js.CreateStream(t.Context(), config)
	}
	require.NoError(t, err)
}

// put writes raw bytes without a check.
func (n *node) put(t testing.TB, bucket, key, value string) uint64 {
	ack, err := n.js.Publish(t.Context(), "$KV."+bucket+"."+key, []byte(value))
	require.NoError(t, err)
	return ack.Sequence
}

// remove leaves a delete marker.
func (n *node) remove(t testing.TB, bucket, key string) uint64 {
	m := nats.NewMsg("$KV." + bucket + "." + key)
	m.Header.Set("KV-Operation", "DEL")
	ack, err := n.js.PublishMsg(t.Context(), m)
	require.NoError(t, err)
	return ack.Sequence
}

// fill writes n keys k0 … with a value of an entity's size.
func (n *node) fill(t testing.TB, bucket string, count int) {
	js, err := jetstream.New(n.nc, jetstream.WithPublishAsyncMaxPending(4096))
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
func (n *node) run(t testing.TB, bucket string) *Index {
	ix := NewIndex(n.js, bucket, describe, Options{})
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

// eventually puts until a put is answered: a client that has just lost its server cannot.
func (n *node) eventually(t testing.TB, bucket, key, value string) {
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.js.Publish(ctx, "$KV."+bucket+"."+key, []byte(value))
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
}
