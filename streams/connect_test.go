package streams

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		have, want string
		older      bool
	}{
		{"2.14.0", "2.14.0", false},
		{"2.13.9", "2.14.0", true},
		{"2.14.1", "2.14.0", false},
		{"2.15.2", "2.14.0", false},
		{"3.0.0", "2.14.0", false},
		{"1.99.99", "2.14.0", true},
		{"2.9.0", "2.14.0", true},
		{"v2.13.0", "2.14.0", true},
		{"2.14.0-RC.1", "2.14.0", false},
		{"2.13.0-RC.1", "2.14.0", true},
		{"2.14", "2.14.0", false},
		{"", "2.14.0", false},
		{"dev", "2.14.0", false},
		{"2.x.0", "2.14.0", false},
		{"2.14.0.1", "2.14.0", false},
	} {
		require.Equal(t, c.older, older(c.have, c.want), "%+v", c)
	}
}

// oldServer speaks just enough of the protocol to say how old it is.
func oldServer(t *testing.T, version string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_, _ = fmt.Fprintf(c, "INFO {\"server_id\":\"X\",\"version\":%q,\"headers\":true,\"max_payload\":1048576}\r\n", version)
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if bytes.Contains(buf[:n], []byte("PING\r\n")) {
						_, _ = c.Write([]byte("PONG\r\n"))
					}
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return "nats://" + l.Addr().String()
}

func TestAnOldServerIsRefused(t *testing.T) {
	t.Parallel()
	url := oldServer(t, "2.12.3")
	_, err := Connect(ConnectOptions{URL: url, Name: "test"})
	require.EqualError(t, err, "streams: NATS at "+url+" is version 2.12.3, 2.14.0 or later is needed (consumer reset, message schedules)")
	nc, err := Connect(ConnectOptions{URL: oldServer(t, "2.14.0"), Name: "test"})
	require.NoError(t, err)
	nc.Close()
	_, err = Connect(ConnectOptions{URL: "nats://127.0.0.1:1", Name: "test"})
	require.EqualError(t, err, "cannot reach NATS at nats://127.0.0.1:1: nothing listens there")
	require.ErrorIs(t, err, nats.ErrNoServers)
}
