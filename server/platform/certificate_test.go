//go:build linux

package platform_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/authority"
	machine "github.com/bcc94042/instar/machines/platform"
)

// A certificate that cannot be renewed is seen in its session, in the metrics and in the audit, and so is the next one when the authority is there again.
func TestTheCertificateOfAnInstanceIsRenewed(t *testing.T) {
	var down atomic.Bool
	w := setup(t, "21300-21399", func(o *authority.Options) {
		o.Good = 40 * time.Second
		o.Front = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if down.Load() {
					http.Error(rw, "away", http.StatusBadGateway)
					return
				}
				next.ServeHTTP(rw, r)
			})
		}
	})
	w.Start()
	w.send("other", "own", "request", `{}`)
	first := *w.ends("other", "own", machine.Ready).Certificate
	require.Equal(t, "0", w.metric("instar_certificates_unrenewed"))
	down.Store(true)
	d := w.becomes("other", "own", "it says that its certificate is not renewed", func(_ string, d *machine.Data) bool { return d.Problem != "" })
	require.Contains(t, d.Problem, "no certificate for other.apps.example.test")
	require.Equal(t, first.Serial, d.Certificate.Serial)
	require.Equal(t, "1", w.metric("instar_certificates_unrenewed"))

	w.Kill() // the next one does not wait for 10 minutes
	down.Store(false)
	w.Start()
	d = w.becomes("other", "own", "its certificate is renewed", func(_ string, d *machine.Data) bool { return d.Certificate.Serial != first.Serial })
	require.True(t, d.Certificate.NotAfter.After(first.NotAfter), "%s is after %s", d.Certificate.NotAfter, first.NotAfter)
	require.Empty(t, d.Problem)
	require.Equal(t, "0", w.metric("instar_certificates_unrenewed"))
	c, err := tls.Dial("tcp", w.Config.Domains.HTTPS, &tls.Config{RootCAs: w.ca.Roots, ServerName: "other.apps.example.test"})
	require.NoError(t, err)
	served := c.ConnectionState().PeerCertificates[0]
	require.NoError(t, c.Close())
	require.False(t, served.NotAfter.Before(d.Certificate.NotAfter), "%x is served", served.SerialNumber)
	w.audited("other", "own")
	w.send("other", "own", "deprovision", `{"tenant":"other"}`) // the next test makes this database with other keys
	w.ends("other", "own", machine.Retired)
}

// metric is the value of one that has no labels.
func (w *world) metric(name string) (value string) {
	w.T.Helper()
	resp, err := http.Get(w.URL + "/metrics")
	require.NoError(w.T, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(w.T, err)
	require.NoError(w.T, resp.Body.Close())
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			value = strings.TrimSpace(rest)
		}
	}
	return value
}
