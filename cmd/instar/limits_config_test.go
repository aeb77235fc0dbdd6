package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/limits"
)

func TestLimitsConfig(t *testing.T) {
	t.Parallel()
	load := func(args ...string) (Config, error) { return Load(ModeServe, flagSet(t, ModeServe, args...), nil) }
	c, err := load()
	require.NoError(t, err)
	require.Equal(t, api.DefaultLimits, c.Limits.of(1<<20))
	require.Equal(t, api.DefaultTimeouts, c.HTTP.timeouts())
	require.Equal(t, 768, c.Limits.of(1024).Connections.All, "the files that may be open are fewer")
	c, err = load("--max-connections", "0", "--max-watches", "7", "--max-watches-per-client", "3", "--rate", "50", "--burst", "100", "--http-write-timeout", "1m")
	require.NoError(t, err)
	l := c.Limits.of(0)
	require.Equal(t, []any{0, limits.Bound{All: 7, Each: 3}, 50, 100, time.Minute}, []any{l.Connections.All, l.Watches, l.Rate, l.Burst, c.HTTP.timeouts().Write})
	require.Equal(t, []int{0, 5, 5, 3}, []int{least(0, 0), least(0, 5), least(5, 0), least(5, 3)})
	for flag, key := range map[string]string{"--max-waits=-1": "limits.waits", "--burst=5": "limits.rate", "--http-body-timeout=1ms": "http.bodyTimeout"} {
		_, err = load(flag)
		require.ErrorContains(t, err, key)
	}
}
