package index

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestActivityForgetsAfterAnHour(t *testing.T) {
	t.Parallel()
	ix := New(nil, "b", nil, Options{})
	begin := time.Unix(1_800_000_000, 0)
	ix.recent.add(begin, 3, 5, "")
	ix.recent.add(begin, 0, 1, "READY")
	ix.recent.add(begin, 9, 9, "")
	ix.recent.add(begin.Add(time.Minute), 5, 6, "FAILED")
	a := ix.Activity(begin.Add(time.Minute))
	require.Len(t, a.Transitions, ActivitySteps)
	require.Equal(t, []uint64{3, 0, 1}, a.Transitions[ActivitySteps-3:])
	require.Equal(t, []uint64{1, 0, 0}, a.Entered["READY"][ActivitySteps-3:])
	require.Equal(t, uint64(1), a.Entered["FAILED"][ActivitySteps-1])
	later := ix.Activity(begin.Add(time.Hour))
	require.Equal(t, uint64(1), later.Transitions[1])
	require.Nil(t, later.Entered["READY"])
	ix.recent.add(begin.Add(time.Hour), 1, 2, "")
	require.Equal(t, uint64(1), ix.Activity(begin.Add(time.Hour)).Transitions[ActivitySteps-1], "the place of an hour ago is free")
}
