package client

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Two processes share a file: what held last is in it, whoever writes, and neither makes the list of the other look newer.
func TestACacheOfTwoProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "web.json")
	one, two := store{path: path}, store{path: path}
	list := func(id string) stored { return stored{Instances: []Endpoint{{InstanceID: id}}} }
	holds := func(id string, at time.Time) {
		t.Helper()
		had, heard, ok := (&store{path: path}).read()
		require.True(t, ok)
		require.Equal(t, id, had.Instances[0].InstanceID)
		require.WithinDuration(t, at, heard, time.Millisecond)
	}
	start := time.Now()
	require.True(t, one.write(list("new"), start))
	require.False(t, two.write(list("old"), start.Add(-time.Hour)), "of a node that is behind")
	holds("new", start)
	at := start.Add(ackEvery + time.Minute)
	one.touch(list("new"), at)
	holds("new", at)

	require.True(t, two.write(list("newest"), at.Add(time.Second)))
	one.touch(list("new"), at.Add(ackEvery))
	holds("newest", at.Add(time.Second))
	two.touch(list("newest"), at.Add(time.Hour))
	holds("newest", at.Add(time.Hour))
	one.touch(list("new"), at.Add(2*time.Hour))
	holds("new", at.Add(2*time.Hour))

	require.True(t, one.write(list("found to be old"), start), "its own list held for less long than it believed")
	holds("found to be old", start)
}

// What stands between a process and the registry may ask for hours, and a lease is to be renewed.
func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, longestRetryAfter, retryAfter(&Error{RetryAfter: time.Hour}, time.Second))
	require.Equal(t, 5*time.Second, retryAfter(&Error{RetryAfter: 5 * time.Second}, time.Second))
	require.Equal(t, time.Second, retryAfter(&Error{}, time.Second))
}
