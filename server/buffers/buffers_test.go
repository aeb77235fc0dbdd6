package buffers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
)

// The bounds that are told are those of the settings.
func TestBuffersTellTheirBounds(t *testing.T) {
	t.Parallel()
	l := api.DefaultLimits
	l.Commands.All, l.CommandsAtOnce, l.Connections.All = 1234, 77, 0
	told := map[string]string{}
	for _, b := range Of(l, 16) {
		require.NotEmpty(t, b.Bound, b.Name)
		require.False(t, strings.Contains(b.Bound, "%!"), b.Bound)
		told[b.Name] = b.Bound
	}
	require.Contains(t, told["commands that wait for a turn"], "1234 (limits.commands)")
	require.Contains(t, told["commands on their way to the stream and the engine"], "77 (limits.commandsAtOnce)")
	require.Contains(t, told["HTTP connections"], "no bound")
	require.Contains(t, told["HTTP connections"], "256 KiB")
	require.Equal(t, "256 commands taken and 2048 delivered, 32 partitions", told["a partition of the engine"])
	require.Contains(t, told["between a bucket and its index"], "131072 messages")
	require.Contains(t, told["changes that a watch has not taken"], "4096 entities, each as it is then, and 32 MiB")
}
