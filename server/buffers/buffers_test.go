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
	for _, b := range Of(l, AtOnce{Effects: 16, Tasks: 5}) {
		require.NotEmpty(t, b.Bound, b.Name)
		require.False(t, strings.Contains(b.Bound, "%!"), b.Bound)
		told[b.Name] = b.Bound
	}
	require.Contains(t, told["commands that wait for a turn"], "1234 (limits.commands)")
	require.Contains(t, told["commands on their way to the stream and the engine"], "77 (limits.commandsAtOnce)")
	require.Contains(t, told["HTTP connections"], "no bound")
	require.Contains(t, told["HTTP connections"], "256 KiB")
	require.Equal(t, "256 commands taken and 2048 delivered, 32 partitions", told["a partition of the engine"])
	require.Contains(t, told["effects under way"], "16 of a kind on all nodes (effects.concurrency), and 5 tasks on this one (tasks.concurrency)")
	require.Contains(t, told["between a bucket and its index"], "131072 messages")
	require.Contains(t, told["changes that a feed of watches has not sent"], "4096 entities for each of its watches and at most 65536, each as it is then, and 32 MiB of values, 128 MiB from 16 watches on")
	require.Contains(t, told["changes that a feed has sent and not all of its watches have"], "4096 entities, each as it is then, and 32 MiB")
	require.Contains(t, told["changes for the catalog"], "1048576 entities, each as it is then, and 2.0 GiB")
	require.Contains(t, told["changes for the orchestrator and the board of tasks"], "1048576 entities, each as it is then, and 2.0 GiB")
	require.Contains(t, told["changes for the prober"], "131072 entities, each as it is then, and 256 MiB")
	require.Contains(t, told["heartbeats, views and acks for the prober"], "65536 of each")
	require.Contains(t, told["changes for an observer"], "4096 entities, each as it is then, and 32 MiB")
}
