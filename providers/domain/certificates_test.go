package domain_test

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/domain"
)

func TestNothingIsOrderedForANameThatLeadsElsewhere(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	ca := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(ca.Close)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	records := domain.Records{Resolver: &names{hosts: map[string][]string{host + ".": {"192.0.2.9"}}}, Points: []string{"192.0.2.1"}}
	c := domain.NewCertificates(domain.CertificateOptions{
		Storage: &certmagic.FileStorage{Path: t.TempDir()}, Directory: ca.URL, Roots: roots, Serves: func(string) bool { return true }, Leads: records.Leads, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(c.Stop)
	_, err := c.Obtain(t.Context(), host)
	require.ErrorContains(t, err, host+" leads to 192.0.2.9")
	require.Eventually(t, func() bool {
		_, _, trouble, err := c.Current(t.Context(), host)
		require.NoError(t, err)
		return trouble != ""
	}, time.Minute, 5*time.Millisecond)
	require.Zero(t, asked.Load())

	records.Resolver = &names{hosts: map[string][]string{host + ".": {"192.0.2.1"}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = c.Obtain(ctx, host)
	require.Error(t, err)
	require.Positive(t, asked.Load(), "now the authority is asked")
}
