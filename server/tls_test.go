package server

import (
	"crypto/tls"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/selfsigned"
	"github.com/bcc94042/instar/server/config"
)

// A listener with an authority takes clients of its only, and reads its certificate with each connection.
func TestTLSOfAListener(t *testing.T) {
	t.Parallel()
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, selfsigned.Write(1, cert, key))
	secured, err := ListenerTLS(config.TLS{CA: cert, Cert: cert, Key: key}, nil) // it is its own authority
	require.NoError(t, err)
	require.Equal(t, tls.RequireAndVerifyClientCert, secured.ClientAuth)
	require.Nil(t, secured.Certificates, "it is looked at with each connection, so that it can be renewed")
	require.NotNil(t, secured.GetCertificate)
	_, err = ListenerTLS(config.TLS{CA: key, Cert: cert, Key: key}, nil)
	require.ErrorContains(t, err, "there is no certificate in")
}
