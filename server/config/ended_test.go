package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhenValuesOfEndedEntitiesAreDropped(t *testing.T) {
	t.Parallel()
	c := Defaults(Serve)
	require.Equal(t, 168*time.Hour, c.DropAfter("service"))
	c.Ended.Machines = map[string]time.Duration{"instance": 48 * time.Hour, "relay": 0}
	require.NoError(t, c.Validate())
	require.Equal(t, []time.Duration{168 * time.Hour, 48 * time.Hour, 0}, []time.Duration{c.DropAfter("service"), c.DropAfter("instance"), c.DropAfter("relay")})
	for _, tooShort := range []time.Duration{-time.Hour, time.Hour, 24*time.Hour - 1} {
		c.Ended.Machines["instance"] = tooShort
		require.ErrorContains(t, c.Validate(), "ended.machines.instance", tooShort)
	}
	c.Ended.Machines = nil
	sessions := func(of time.Duration) []time.Duration {
		c.Ended.DropAfter = of
		return []time.Duration{c.DropAfter("database_provisioning"), c.DropAfter("instance_provisioning")}
	}
	require.Equal(t, []time.Duration{0, 0}, sessions(0), "what is kept for ever is")
	require.Equal(t, []time.Duration{4000 * time.Hour, 4000 * time.Hour}, sessions(4000*time.Hour))
	require.Equal(t, []time.Duration{2160 * time.Hour, 2160 * time.Hour}, sessions(168*time.Hour))
	c.Ended.Machines = map[string]time.Duration{"database_provisioning": 48 * time.Hour}
	require.Equal(t, []time.Duration{48 * time.Hour, 2160 * time.Hour}, sessions(168*time.Hour))
	c.Ended.Machines = nil
	c.IdempotencyWindow = 200 * time.Hour
	require.ErrorContains(t, c.Validate(), "ended.dropAfter: 168h0m0s is less than 200h0m0s", "no answer may be kept longer than the value")
	c = Defaults(Serve)
	c.Index.EndedFor = 0
	require.NoError(t, c.Validate())
	require.Zero(t, c.DropAfter("service"), "what the lists show for ever is kept")
}
