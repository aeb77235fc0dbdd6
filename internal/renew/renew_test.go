package renew

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/selfsigned"
)

// A listener and a client show what is in the files at each handshake; what cannot be used, such as half of a renewal, they do not.
func TestWhatIsPutIntoTheFilesIsShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	put := func(file string, text []byte) { // as those who renew do: written beside, and moved
		require.NoError(t, os.WriteFile(file+".new", text, 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	cert1, key1 := made(t, 1)
	put(cert, cert1)
	put(key, key1)
	var log bytes.Buffer
	c, err := Load(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	server, client := &tls.Config{ClientAuth: tls.RequireAnyClientCert}, &tls.Config{InsecureSkipVerify: true}
	c.Serve(server)
	c.Show(client)
	shown := func() (int64, int64) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		listening, dialling := tls.Server(here, server), tls.Client(there, client)
		done := make(chan error, 1)
		go func() { done <- listening.Handshake() }()
		require.NoError(t, dialling.Handshake())
		require.NoError(t, <-done)
		return dialling.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), listening.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	both := func(want int64) {
		t.Helper()
		a, b := shown()
		require.Equal(t, []int64{want, want}, []int64{a, b})
	}
	both(1)
	cert2, key2 := made(t, 2)
	put(cert, cert2)
	both(1) // its key is not there yet
	put(key, key2)
	both(2)
	put(cert, []byte("nothing"))
	both(2)
	require.NoError(t, os.Remove(cert))
	both(2)
	require.Equal(t, 1, strings.Count(log.String(), "cannot read a certificate"), log.String())
	put(cert, cert1)
	put(key, key1)
	both(1)

	// A file that cannot be read for its rights looks the same when it can: here it has other content instead.
	put(cert, cert2)
	put(key, bytes.Repeat([]byte("x"), len(key2)))
	both(1)
	info, err := os.Stat(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, key2, 0o600))
	require.NoError(t, os.Chtimes(key, info.ModTime(), info.ModTime()))
	both(2)
	put(cert, cert1)
	put(key, key1)
	both(1)

	_, err = Load(cert, filepath.Join(dir, "none"), nil)
	require.ErrorContains(t, err, "cannot read a certificate")
	put(key, key2)
	_, err = Load(cert, key, nil)
	require.ErrorContains(t, err, "cannot use the certificate")
}

func made(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, selfsigned.Write(serial, filepath.Join(dir, "cert"), filepath.Join(dir, "key")))
	var err error
	cert, err = os.ReadFile(filepath.Join(dir, "cert"))
	require.NoError(t, err)
	key, err = os.ReadFile(filepath.Join(dir, "key"))
	require.NoError(t, err)
	return cert, key
}
