package tenants

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// The streams of an audit keep their records as the configuration says; one that had a shorter time remembers it, for whoever verifies the chain.
func TestTheAuditIsKeptAsTheConfigurationSays(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	const day = 24 * time.Hour
	var log bytes.Buffer
	h := &server.Host{Replicas: 1, Log: slog.New(slog.NewTextHandler(&log, nil))}
	h.Deps.JS, h.Deps.Names = e.JS, e.Names
	lives := func(state time.Duration) map[string]audit.Life {
		h.Config.Tenants.Audit = nil
		if state > 0 {
			h.Config.Tenants.Audit = map[string]time.Duration{"state": state}
		}
		require.NoError(t, audits(t.Context(), h))
		all := map[string]audit.Life{}
		for _, class := range streams.Classes {
			s, err := e.JS.Stream(t.Context(), e.Names.AuditStream(class))
			require.NoError(t, err)
			require.True(t, s.CachedInfo().Config.DenyDelete)
			all[class] = audit.LifeOf(s.CachedInfo().Config)
		}
		return all
	}
	kept := func(state int64) map[string]audit.Life {
		return map[string]audit.Life{"state": {Kept: state}, "resource": {Kept: 3 * 365 * 86400}, "error": {Kept: 365 * 86400}, "progress": {Kept: 90 * 86400}}
	}
	require.Equal(t, kept(3*365*86400), lives(0))
	require.Empty(t, log.String())
	require.Equal(t, kept(2*86400), lives(2*day))
	require.Contains(t, log.String(), "class=state before=26280h0m0s now=48h0m0s")
	log.Reset()
	longer := lives(4 * day)["state"]
	require.EqualValues(t, 4*86400, longer.Kept)
	require.Len(t, longer.Before, 1)
	require.EqualValues(t, 2*86400, longer.Before[0].Kept)
	require.WithinDuration(t, time.Now(), longer.Before[0].Until, time.Hour)
	require.Equal(t, longer, lives(4 * day)["state"], "nothing is new")
	require.Equal(t, longer, lives(0)["state"], "a node without the setting leaves it")
	require.Empty(t, log.String(), "nothing is kept for a shorter time")
}
