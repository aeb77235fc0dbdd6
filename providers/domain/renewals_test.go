package domain

import (
	"testing"
	"time"

	"github.com/mholt/acmez/v3/acme"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
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
		require.Equal(t, "no answer", rs.trouble("a"))
		require.False(t, rs.begin("a", now.Add(wait-time.Second)), "it waits for %s", wait)
		now = now.Add(wait)
	}
	require.True(t, rs.begin("b", now), "another name does not wait")
	rs.failed("b", "rate limited", 3*time.Hour, now)
	require.False(t, rs.begin("b", now.Add(3*time.Hour-time.Second)), "the authority has said when")

	require.True(t, rs.begin("a", now))
	rs.succeeded("a", 90*24*time.Hour, now)
	require.Empty(t, rs.trouble("a"))
	require.False(t, rs.begin("a", now.Add(time.Hour-time.Second)), "whatever the clock or the storage say, as soon as after an hour none is ordered anew")
	require.True(t, rs.begin("a", now.Add(time.Hour)))
	rs.failed("a", "no answer", 0, now)
	require.False(t, rs.begin("a", now.Add(10*time.Minute-time.Second)))
	require.True(t, rs.begin("a", now.Add(10*time.Minute)), "it counts from the last success")
	rs.succeeded("a", 12*time.Second, now)
	require.True(t, rs.begin("a", now.Add(4*time.Second)), "one that lives shorter is renewed in its last third")
	rs.forget("b")
	require.Empty(t, rs.trouble("b"))
	require.True(t, rs.begin("b", now))
	rs.forget("b")
	require.False(t, rs.begin("b", now), "it is still under way")
}

// Boulder names the end of the wait in its text. One that has passed, or is not named, is a quarter of an hour, and none is longer than what any failure may ask for.
func TestWhatALimitingAuthorityNamesIsAwaited(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)
	for detail, wait := range map[string]time.Duration{
		"too many certificates (5) already issued for this exact set of identifiers in the last 168h0m0s, retry after 2026-01-26 17:40:30 UTC: see https://letsencrypt.org/docs/rate-limits/": 40*time.Minute + 30*time.Second,
		"too many new orders, retry after 2026-01-26 16:59:59 UTC": rateWait, "retry after some time": rateWait, "retry after": rateWait, "": rateWait,
		"retry after 2099-01-01 00:00:00 UTC": machines.MaxRetryAfter,
	} {
		require.Equal(t, wait, retryAfter(detail, now), detail)
	}
	f := providers.Failure(refusal("shop.example.com", acme.Problem{Type: acme.ProblemTypeRateLimited, Detail: "retry after 2099-01-01 00:00:00 UTC"}))
	require.True(t, f.Retryable)
	require.Equal(t, machines.MaxRetryAfter, f.RetryAfter)
	require.Contains(t, f.Message, "limits rates")
}
