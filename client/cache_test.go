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
	start := time.Now()
	now := start
	clock := func() time.Time { return now }
	one, two := store{path: path, clock: clock}, store{path: path, clock: clock}
	list := func(id string) stored { return stored{Instances: []Endpoint{{InstanceID: id}}} }
	holds := func(id string, at time.Time) {
		t.Helper()
		had, heard, ok := (&store{path: path, clock: clock}).read()
		require.True(t, ok)
		require.Equal(t, id, had.Instances[0].InstanceID)
		require.WithinDuration(t, at, heard, time.Millisecond)
	}
	require.True(t, one.write(list("new"), start))
	require.False(t, two.write(list("old"), start.Add(-time.Hour)), "of a node that is behind")
	holds("new", start)
	at := start.Add(ackEvery + time.Minute)
	now = at
	one.touch(list("new"), at)
	holds("new", at)

	require.True(t, two.write(list("newest"), at.Add(time.Second)))
	now = at.Add(ackEvery)
	one.touch(list("new"), now)
	holds("newest", at.Add(time.Second))
	now = at.Add(time.Hour)
	two.touch(list("newest"), now)
	holds("newest", at.Add(time.Hour))
	now = at.Add(2 * time.Hour)
	one.touch(list("new"), now)
	holds("new", at.Add(2*time.Hour))

	require.True(t, one.write(list("found to be old"), start), "its own list held for less long than it believed")
	holds("found to be old", start)
}

// A clock that was put back leaves a file that is dated in the future: whatever is known now is newer, and nobody can tell how
// old what is in it is.
func TestACacheFromTheFuture(t *testing.T) {
	t.Parallel()
	now := time.Now()
	list := func(id string) stored { return stored{Instances: []Endpoint{{InstanceID: id}}} }
	for name, replace := range map[string]func(s *store){
		"a change": func(s *store) { require.True(t, s.write(list("new"), now)) },
		"no news":  func(s *store) { s.touch(list("new"), now) },
	} {
		path := filepath.Join(t.TempDir(), "web.json")
		require.True(t, (&store{path: path}).write(list("old"), now.Add(24*time.Hour)), name)
		_, at, ok := (&store{path: path}).read()
		require.True(t, ok, "it is better than nothing")
		require.True(t, at.Before(now.Add(-24*time.Hour)), name)
		replace(&store{path: path})
		had, at, _ := (&store{path: path}).read()
		require.Equal(t, "new", had.Instances[0].InstanceID, name)
		require.WithinDuration(t, now, at, time.Second, name)
	}
}

// What stands between a process and the registry may ask for hours, and a lease is to be renewed.
func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, longestRetryAfter, retryAfter(&Error{RetryAfter: time.Hour}, time.Second))
	require.Equal(t, 5*time.Second, retryAfter(&Error{RetryAfter: 5 * time.Second}, time.Second))
	require.Equal(t, time.Second, retryAfter(&Error{}, time.Second))
}
