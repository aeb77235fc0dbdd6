package domain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
