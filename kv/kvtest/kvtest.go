// Package kvtest is a server with buckets, for tests: one that can be stopped and started again, lose what it stored last, and answer
// some requests wrongly.
package kvtest

// Tests of kv, kv/index and feed start a Node, make buckets as the server does (Create), and write raw values and markers
// to them (Put, Remove). They then stop and restart it, put its directory back to an earlier state (Snapshot, Restore), or
// answer requests of a client in its place (Faulty), and check what the packages make of that.

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

// Node is a real server over a temporary directory, with a client that reconnects whenever the server is back.
type Node struct {
	NC *nats.Conn
	JS jetstream.JetStream

	opts server.Options
	srv  *server.Server
}

// Start starts a server, which ends with the test.
func Start(t testing.TB) *Node {
	n := &Node{opts: server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}}
	n.Restart(t)
	nc, err := nats.Connect(n.srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	require.NoError(t, err)
	n.NC = nc
	n.JS, err = jetstream.New(nc)
	require.NoError(t, err)
	t.Cleanup(func() {
		closed := nc.StatusChanged(nats.CLOSED)
		nc.Close()
		<-closed
		n.Stop()
	})
	return n
}

// Restart starts the server again, on its port.
func (n *Node) Restart(t testing.TB) {
	opts := n.opts
	srv, err := server.NewServer(&opts)
	require.NoError(t, err)
	srv.Start()
	require.True(t, srv.ReadyForConnections(10*time.Second))
	n.srv, n.opts.Port = srv, srv.Addr().(*net.TCPAddr).Port
}

// Stop stops the server, and waits until it has.
func (n *Node) Stop() {
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
}

// Create creates the stream of a bucket as the program does, not as nats.go would.
func (n *Node) Create(t testing.TB, bucket string) {
	config := jetstream.StreamConfig{
		Name: streams.BucketStream(bucket), Subjects: []string{streams.BucketSubject(bucket, ">")}, MaxMsgsPerSubject: 1,
		Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowMsgTTL: true,
	}
	_, err := n.JS.CreateStream(t.Context(), config)
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); { // one of the name was deleted, and its files are still going
		_, err = n.JS.CreateStream(t.Context(), config)
	}
	require.NoError(t, err)
}

// Put writes raw bytes without a check.
func (n *Node) Put(t testing.TB, bucket, key, value string) uint64 {
	ack, err := n.JS.Publish(t.Context(), streams.BucketSubject(bucket, key), []byte(value))
	require.NoError(t, err)
	return ack.Sequence
}

// PutOnceBack puts until a put is answered: a client that has just lost its server cannot.
func (n *Node) PutOnceBack(t testing.TB, bucket, key, value string) {
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.JS.Publish(ctx, streams.BucketSubject(bucket, key), []byte(value))
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
}

// Remove leaves a delete marker.
func (n *Node) Remove(t testing.TB, bucket, key string) uint64 {
	m := nats.NewMsg(streams.BucketSubject(bucket, key))
	m.Header.Set("KV-Operation", "DEL")
	ack, err := n.JS.PublishMsg(t.Context(), m)
	require.NoError(t, err)
	return ack.Sequence
}

// Snapshot is a copy of the server's directory as it is now. The server is restarted for it.
func (n *Node) Snapshot(t testing.TB) (dir string) {
	t.Helper()
	n.Stop()
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(n.opts.StoreDir)))
	n.Restart(t)
	require.Eventually(t, func() bool { return n.NC.IsConnected() && n.NC.Flush() == nil }, 10*time.Second, 5*time.Millisecond)
	return dir
}

// Restore puts the server's directory back to a snapshot, has others write to a bucket meanwhile, and comes back.
func (n *Node) Restore(t testing.TB, snapshot, bucket string, others func(put func(key, value string))) {
	t.Helper()
	n.Stop()
	require.NoError(t, os.RemoveAll(n.opts.StoreDir))
	require.NoError(t, os.CopyFS(n.opts.StoreDir, os.DirFS(snapshot)))
	port := n.opts.Port
	n.opts.Port = -1
	n.Restart(t) // on another port, so that followers do not see it yet
	nc, err := nats.Connect(n.srv.ClientURL())
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	others(func(key, value string) {
		_, err := js.Publish(t.Context(), streams.BucketSubject(bucket, key), []byte(value))
		require.NoError(t, err)
	})
	nc.Close()
	n.Stop()
	n.opts.Port = port
	n.Restart(t)
}

// Faulty is a JetStream whose API answers some requests otherwise than the server: with what fault returns, unless that is empty.
func (n *Node) Faulty(t testing.TB, fault func(request string) (answer string)) jetstream.JetStream {
	sub, err := n.NC.Subscribe("FAULT.>", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, "FAULT.")
		if answer := fault(request); answer != "" {
			_ = m.Respond([]byte(answer))
			return
		}
		_ = n.NC.PublishRequest("$JS.API."+request, m.Reply, m.Data)
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	js, err := jetstream.NewWithAPIPrefix(n.NC, "FAULT")
	require.NoError(t, err)
	return js
}
