package domain

import (
	"testing"
	"time"

	"github.com/mholt/acmez/v3/acme"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
)

func TestRenewalsLeaveTheCertificateAuthorityAlone(t *testing.T) {
	t.Parallel()
	var rs renewals
	now := time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)
	for _, wait := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 80 * time.Minute, 160 * time.Minute, 320 * time.Minute, 640 * time.Minute, 12 * time.Hour, 12 * time.Hour} {
		require.True(t, rs.begin("a", now))
		require.False(t, rs.begin("a", now), "one is under way")
		rs.failed("a", "no answer", 0, now)
		require.Equal(t, "no answer", rs.trouble("a", now))
		require.False(t, rs.begin("a", now.Add(wait-time.Second)), "it waits for %s", wait)
		now = now.Add(wait)
	}
	require.True(t, rs.begin("b", now), "another name does not wait")
	rs.failed("b", "rate limited", 3*time.Hour, now)
	require.False(t, rs.begin("b", now.Add(3*time.Hour-time.Second)), "the authority has said when")

	require.True(t, rs.begin("a", now))
	rs.succeeded("a", 90*24*time.Hour, now)
	require.Empty(t, rs.trouble("a", now))
	require.False(t, rs.begin("a", now.Add(time.Hour-time.Second)), "whatever the clock or the storage say, as soon as after an hour none is ordered anew")
	require.True(t, rs.begin("a", now.Add(time.Hour)))
	rs.failed("a", "no answer", 0, now)
	require.False(t, rs.begin("a", now.Add(10*time.Minute-time.Second)))
	require.True(t, rs.begin("a", now.Add(10*time.Minute)), "it counts from the last success")
	rs.succeeded("a", 12*time.Second, now)
	require.True(t, rs.begin("a", now.Add(4*time.Second)), "one that lives shorter is renewed in its last third")
	rs.forget("b")
	require.Empty(t, rs.trouble("b", now))
	require.True(t, rs.begin("b", now))
	rs.forget("b")
	require.False(t, rs.begin("b", now), "it is still under way")
}

// The names of a role that has moved to another process are not this one's trouble.
func TestTroubleIsOfNamesThatAreLookedAt(t *testing.T) {
	t.Parallel()
	var rs renewals
	now := time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)
	for _, host := range []string{"a", "b"} {
		require.True(t, rs.begin(host, now))
		require.Empty(t, rs.trouble(host, now))
		rs.failed(host, "no answer", 0, now)
	}
	require.Equal(t, 2, rs.troubled(now))
	now = now.Add(10 * time.Minute)
	require.Equal(t, "no answer", rs.trouble("a", now))
	require.Equal(t, 2, rs.troubled(now))
	require.Equal(t, 1, rs.troubled(now.Add(10*time.Minute)))
	require.Equal(t, 0, rs.troubled(now.Add(15*time.Minute)))
}

// Boulder names the end of the wait in its text. One that has passed, or is not named, is a quarter of an hour, and none is longer than what any failure may ask for.
func TestWhatALimitingAuthorityNamesIsAwaited(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)
	for detail, wait := range map[string]time.Duration{
		"too many certificates (5) already issued for this exact set of identifiers in the last 168h0m0s, retry after 2026-01-26 17:40:30 UTC: see https://letsencrypt.org/docs/rate-limits/": 40*time.Minute + 30*time.Second,
		"too many new orders, retry after 2026-01-26 16:59:59 UTC": 0, "retry after some time": 0, "retry after": 0, "": 0,
		"retry after 2099-01-01 00:00:00 UTC": longest,
	} {
		require.Equal(t, wait, named(detail, now), detail)
	}
	f := providers.Failure(refusal("shop.example.com", acme.Problem{Type: acme.ProblemTypeRateLimited, Detail: "retry after 2099-01-01 00:00:00 UTC"}, time.Hour))
	require.True(t, f.Retryable)
	require.Equal(t, longest, f.RetryAfter)
	require.Contains(t, f.Message, "limits rates")
	require.Zero(t, providers.Failure(refusal("shop.example.com", acme.Problem{Type: acme.ProblemTypeConnection, Status: 400}, time.Hour)).RetryAfter, "another name was told to wait")
	require.Equal(t, time.Hour, providers.Failure(refusal("shop.example.com", acme.Problem{Status: 503}, time.Hour)).RetryAfter)
	require.Equal(t, rateWait, providers.Failure(refusal("shop.example.com", acme.Problem{Type: acme.ProblemTypeRateLimited}, 0)).RetryAfter)
}
