package streams

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// The program itself connects in process, and nobody else without TLS.
func TestTheListenerTakesOnlyTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	s, err := StartServer(ServerOptions{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Profile: OS, TLSCert: cert, TLSKey: key, Users: []User{{Name: "reader", Password: "secret", Role: RoleAdmin}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.Background())) })
	own, err := Connect(ConnectOptions{Server: s, Name: "test", Cert: cert, Key: key})
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
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
	return cert, key
}
