package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/simulation/schedule"
)

func TestAimsAreKnown(t *testing.T) {
	t.Parallel()
	for _, aim := range []string{"", "crash", "restore", "pause", "server-power", "zombie@timer", "crash@slots", "tasks", "tasks/again"} {
		require.NoError(t, schedule.Aims(aim), aim)
	}
	for _, aim := range []string{"crsh", "crash@evnt", "slow@value", "tasksfoo", "@value", "zombie@"} {
		require.Error(t, schedule.Aims(aim), aim)
	}
}
