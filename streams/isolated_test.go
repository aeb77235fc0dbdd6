package streams

import (
	"bytes"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// way is a TCP proxy to a NATS server. Cut off, it keeps its connections, answers pings and swallows all else: what a
// server does that is isolated from the rest of its cluster.
type way struct {
	listener net.Listener
	to       string
	cut      atomic.Bool
	asked    atomic.Int32 // questions to JetStream
	running  sync.WaitGroup
}

func newWay(t *testing.T, to string) *way {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &way{listener: l, to: to}
	w.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.running.Go(func() { w.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.running.Wait()
	})
	return w
}

func (w *way) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	up, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	var back sync.WaitGroup
	defer back.Wait()
	defer func() { _ = up.Close() }()
	back.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := up.Read(buf)
			if err != nil {
				_ = client.Close()
				return
			}
			if !w.cut.Load() {
				_, _ = client.Write(buf[:n])
			}
		}
	})
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if bytes.Contains(buf[:n], []byte("$JS.API.INFO")) {
			w.asked.Add(1)
		}
		switch {
		case !w.cut.Load():
			_, _ = up.Write(buf[:n])
		case bytes.Contains(buf[:n], []byte("PING\r\n")):
			_, _ = client.Write([]byte("PONG\r\n"))
		}
	}
}

func TestLeavesAServerWhoseJetStreamIsSilent(t *testing.T) {
	t.Parallel()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, NoSystemAccount: true})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(10*time.Second))
	at, err := url.Parse(srv.ClientURL())
	require.NoError(t, err)
	ways := map[string]*way{}
	var urls []string
	for range 2 {
		w := newWay(t, at.Host)
		ways[w.listener.Addr().String()] = w
		urls = append(urls, "nats://"+w.listener.Addr().String())
	}
	nc, err := Connect(ConnectOptions{URL: strings.Join(urls, ","), Name: "test", ask: 100 * time.Millisecond})
	require.NoError(t, err)
	closed := nc.StatusChanged(nats.CLOSED)
	t.Cleanup(func() { nc.Close(); <-closed })
	here := func() string {
		u, _ := url.Parse(nc.ConnectedUrl())
		return u.Host
	}
	first := here()
	require.Eventually(t, func() bool { return ways[first].asked.Load() >= 2 }, 10*time.Second, time.Millisecond, "the first question was answered")
	require.Zero(t, nc.Stats().Reconnects)

	ways[first].cut.Store(true)
	require.Eventually(t, func() bool { return nc.IsConnected() && here() != first }, 10*time.Second, 10*time.Millisecond)
	js, err := JetStream(nc)
	require.NoError(t, err)
	_, err = js.AccountInfo(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, nc.Stats().Reconnects)
}

// An answer that says that there is no leader is none; any other one shows that JetStream is there.
func TestWatchdogCountsWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		good   bool
	}{
		"Answered":     {`{"type":"io.nats.jetstream.api.v1.account_info_response","memory":0}`, true},
		"NoLeader":     {`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`, false},
		"NotPermitted": {`{"error":{"code":503,"err_code":10039,"description":"JetStream not enabled for account"}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
			require.NoError(t, err)
			srv.Start()
			t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
			require.True(t, srv.ReadyForConnections(10*time.Second))
			nc, err := nats.Connect(srv.ClientURL())
			require.NoError(t, err)
			closed := nc.StatusChanged(nats.CLOSED)
			t.Cleanup(func() { nc.Close(); <-closed })
			w := watchdog{nc: nc, within: 5 * time.Second}
			require.False(t, w.answered(), "nobody is there")
			_, err = nc.Subscribe("$JS.API.INFO", func(m *nats.Msg) { _ = m.Respond([]byte(c.answer)) })
			require.NoError(t, err)
			require.Equal(t, c.good, w.answered())
		})
	}
}
