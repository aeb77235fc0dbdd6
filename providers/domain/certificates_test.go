package domain_test

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/providers"
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

// refusing is what issues certificates by an authority that answers everything in the same way.
func refusing(t *testing.T, status int, header http.Header, body string) *domain.Certificates {
	t.Helper()
	ca := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), header)
		if body[0] == '{' {
			w.Header().Set("Content-Type", "application/problem+json")
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(ca.Close)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	c := domain.NewCertificates(domain.CertificateOptions{
		Storage: &certmagic.FileStorage{Path: t.TempDir()}, Directory: ca.URL, Roots: roots, Serves: func(string) bool { return true }, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(c.Stop)
	return c
}

// What is refused for the name itself is not ordered again by anybody, whichever machine it is for.
func TestTheLastWordOfACertificateAuthorityIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, problem := range []string{"caa", "rejectedIdentifier", "unsupportedIdentifier"} {
		c := refusing(t, http.StatusForbidden, nil, `{"type":"urn:ietf:params:acme:error:`+problem+`","detail":"not for you"}`)
		_, err := c.Obtain(t.Context(), host)
		require.Equal(t, &machines.Failure{Code: domain.CodeCertificate, Message: "no certificate for " + host + ": not for you"}, providers.Failure(err), problem)
	}
}

// What a certificate authority asks for that refuses is the least wait until it is asked again.
func TestACertificateAuthorityIsLeftAloneForAsLongAsItAsks(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		status      int
		after, body string
		least, most time.Duration
	}{
		"that limits rates":        {status: http.StatusTooManyRequests, after: "7200", body: `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many"}`, least: 110 * time.Minute, most: 2 * time.Hour},
		"that limits without time": {status: http.StatusTooManyRequests, body: `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many"}`, least: 15 * time.Minute, most: 15 * time.Minute},
		"that is away until":       {status: http.StatusServiceUnavailable, after: time.Now().Add(3 * time.Hour).UTC().Format(http.TimeFormat), body: "maintenance", least: 170 * time.Minute, most: 3 * time.Hour},
		"that is away":             {status: http.StatusServiceUnavailable, body: "maintenance"},
		"that fails":               {status: http.StatusInternalServerError, after: "7200", body: "a mistake"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{}
			if of.after != "" {
				header.Set("Retry-After", of.after)
			}
			_, err := refusing(t, of.status, header, of.body).Obtain(t.Context(), host)
			f := providers.Failure(err)
			require.True(t, f.Retryable, "%v", err)
			require.GreaterOrEqual(t, f.RetryAfter, of.least, "%v", err)
			require.LessOrEqual(t, f.RetryAfter, of.most, "%v", err)
		})
	}
}
