package embedded

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/selfsigned"
	"github.com/bcc94042/instar/streams"
)

// The program itself connects in process, and nobody else without TLS.
func TestTheListenerTakesOnlyTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	s, err := Start(Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Profile: OS, TLSCert: cert, TLSKey: key, Users: []User{{Name: "reader", Password: "secret", Role: RoleAdmin}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.Background())) })
	own, err := streams.Connect(streams.ConnectOptions{Server: s, Name: "test", Cert: cert, Key: key})
	require.NoError(t, err)
	own.Close()

	conn, err := net.Dial("tcp", s.srv.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("CONNECT {\"user\":\"reader\",\"pass\":\"secret\",\"verbose\":true}\r\nPING\r\n"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	answer := make([]byte, 0, 4096)
	for part := make([]byte, 1024); err == nil; {
		var n int
		n, err = conn.Read(part)
		answer = append(answer, part[:n]...)
	}
	require.NotContains(t, string(answer), "PONG")

	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("reader", "secret"), nats.RootCAs(cert))
	require.NoError(t, err)
	nc.Close()

	renewed, itsKey := certificate(t)
	require.NoError(t, os.Rename(renewed, cert))
	require.NoError(t, os.Rename(itsKey, key))
	nc, err = nats.Connect(s.ClientURL(), nats.UserInfo("reader", "secret"), nats.RootCAs(cert))
	require.NoError(t, err, "the certificate that was renewed is shown without a restart")
	nc.Close()
}

// certificate writes one for 127.0.0.1, signed by itself.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, selfsigned.Write(1, cert, key))
	return cert, key
}
