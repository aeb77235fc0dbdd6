package tasks

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

type failing struct{ failure machines.Failure }

func (f failing) Perform(context.Context, machines.Task) machines.Result {
	return machines.Result{Failure: &f.failure}
}

// A task that has failed on a node whose disk is full is not tried again there: the others have room, or it waits.
func TestANodeThatCannotWriteTakesNoTasks(t *testing.T) {
	t.Parallel()
	dir, now, offers := filepath.Join(t.TempDir(), "work"), time.Now(), []int{}
	s := &space{dir: dir, tasks: 4, offer: func(n int) { offers = append(offers, n) }, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now }}
	fails := func(retryable bool) {
		p := &performer{space: s, run: failing{machines.Failure{Code: "internal", Retryable: retryable}}}
		require.NotNil(t, p.Perform(t.Context(), machines.Task{Effect: "erase"}).Failure)
	}
	require.NoError(t, os.Mkdir(dir, 0o700))
	fails(true)
	require.Empty(t, offers, "a failure of the task's own")

	require.NoError(t, os.Remove(dir))
	fails(false)
	require.Empty(t, offers, "one that no other node would do better")
	fails(true)
	require.Equal(t, []int{0}, offers)
	s.look()
	require.Equal(t, []int{0}, offers, "told once")

	require.NoError(t, os.Mkdir(dir, 0o700))
	s.look()
	require.Equal(t, []int{0}, offers, "not at once: the next task may fill it again")
	now = now.Add(spaceCalm + time.Second)
	s.look()
	require.Equal(t, []int{0, 4}, offers)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
