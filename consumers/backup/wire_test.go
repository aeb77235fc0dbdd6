package backup

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// wire connects to a server in process, and is a network that is not at its best.
type wire struct {
	nats.InProcessConnProvider
	most int           // bytes that are read at a time; 0 is as many as there are
	cut  *atomic.Int64 // bytes until the connection is lost, once; nil is never
}

func (w wire) InProcessConn() (net.Conn, error) {
	c, err := w.InProcessConnProvider.InProcessConn()
	return &wired{c, w}, err
}

type wired struct {
	net.Conn
	w wire
}

func (c *wired) Read(b []byte) (int, error) {
	if c.w.most > 0 {
		b = b[:min(len(b), c.w.most)]
	}
	n, err := c.Conn.Read(b)
	c.carried(n)
	return n, err
}

func (c *wired) Write(b []byte) (int, error) {
	c.carried(len(b))
	return c.Conn.Write(b)
}

func (c *wired) carried(n int) {
	if c.w.cut == nil {
		return
	}
	if left := c.w.cut.Add(-int64(n)); left <= 0 && left+int64(n) > 0 {
		_ = c.Close()
	}
}

// A server closes the connection of whoever lets too much wait. Where one is lost nevertheless, nothing of what it carried is.
func TestReadingLargeValues(t *testing.T) {
	t.Parallel()
	srv, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, MaxPending: 3 * aheadBytes})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(10*time.Second))
	open := func(w wire) (*nats.Conn, jetstream.JetStream) {
		w.InProcessConnProvider = srv
		nc, err := nats.Connect("", nats.InProcessServer(w))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		return nc, js
	}
	_, js := open(wire{})
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LARGE", Subjects: []string{"large"}})
	require.NoError(t, err)
	large, all := make([]byte, 1<<20-100), []uint64(nil)
	for len(all) < 5*aheadBytes>>20 {
		ack, err := js.Publish(t.Context(), "large", large)
		require.NoError(t, err)
		all = append(all, ack.Sequence)
	}
	left := new(atomic.Int64)
	left.Store(19 << 20) // nothing waits behind it at the server
	for what, c := range map[string]struct {
		over wire
		lost uint64
	}{"slowly": {wire{most: 512}, 0}, "with a loss": {wire{cut: left}, 1}} {
		t.Run(what, func(t *testing.T) {
			nc, js := open(c.over)
			var seen []uint64
			require.NoError(t, each(t.Context(), js, "LARGE", func(_ jetstream.Msg, meta *jetstream.MsgMetadata) (bool, error) {
				seen = append(seen, meta.Sequence.Stream)
				return true, nil
			}))
			require.Equal(t, all, seen)
			require.Equal(t, c.lost, nc.Stats().Reconnects)
		})
	}
}
