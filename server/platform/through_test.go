package platform

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// certificate is one that nobody has signed for.
func certificate(t *testing.T, name string, from, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	of := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: from, NotAfter: until}
	raw, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// An application is proven by what its users would get: a certificate of the name, which is good now.
func TestAProbeGoesThroughOnlyWithACertificateOfTheNameThatIsGood(t *testing.T) {
	t.Parallel()
	const name = "acme.apps.example.test"
	now := time.Now()
	for what, of := range map[string]struct {
		certificate tls.Certificate
		refused     string
	}{
		"good":         {certificate: certificate(t, name, now.Add(-time.Hour), now.Add(time.Hour))},
		"another name": {certificate(t, "other.apps.example.test", now.Add(-time.Hour), now.Add(time.Hour)), "certificate is valid for other.apps.example.test, not " + name},
		"ended":        {certificate(t, name, now.Add(-2*time.Hour), now.Add(-time.Hour)), "certificate has expired or is not yet valid"},
		"to come":      {certificate(t, name, now.Add(time.Hour), now.Add(2*time.Hour)), "certificate has expired or is not yet valid"},
	} {
		proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		proxy.TLS = &tls.Config{Certificates: []tls.Certificate{of.certificate}}
		proxy.StartTLS()
		client := through(proxy.Listener.Addr().String())
		resp, err := client.Get("https://" + name + "/")
		if of.refused == "" {
			require.NoError(t, err, what)
			require.NoError(t, resp.Body.Close())
		} else {
			require.ErrorContains(t, err, of.refused, what)
		}
		client.CloseIdleConnections()
		proxy.Close()
	}
	require.Error(t, good(tls.ConnectionState{ServerName: name}))
}
