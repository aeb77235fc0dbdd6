package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// A partition is passed over when this process has it for the first time, or again, and then once in an hour.
func TestAPartitionThatIsTakenOverIsPassedOver(t *testing.T) {
	t.Parallel()
	mine := map[int]bool{1: true}
	p := &Passes{Owns: func(n int) bool { return mine[n] }}
	require.True(t, p.begin())
	require.Equal(t, map[int]bool{1: true}, p.due)
	p.end()
	require.False(t, p.begin())
	mine[2] = true
	require.True(t, p.begin())
	require.Equal(t, map[int]bool{2: true}, p.due)
	m, key := &machines.Machine{Name: "thing"}, ""
	for i := 0; streams.Partition(m.Name, key) != 2; i++ {
		key = fmt.Sprint("default.", i)
	}
	require.True(t, p.looks(m, key))
	mine[2] = false
	require.False(t, p.looks(m, key))
	mine[2] = true
	require.False(t, p.looks(m, key), "some of it was left out meanwhile")
	p.end()
	require.True(t, p.begin(), "so it is passed over again")
	require.Equal(t, map[int]bool{2: true}, p.due)
	p.end()
	mine[1] = false
	require.False(t, p.begin())
	mine[1] = true
	require.True(t, p.begin(), "another one has had it meanwhile")
	require.Equal(t, map[int]bool{1: true}, p.due)
	p.end()
	p.passed[2] -= passEvery + time.Second
	require.True(t, p.begin())
	require.Equal(t, map[int]bool{2: true}, p.due)
	p.unsure[2] = true
	p.end()
	require.False(t, p.begin())
	p.passed[2] -= again
	require.True(t, p.begin(), "something of it could not be looked at")
	mine[2] = false
	p.end()
	mine[2] = true
	require.True(t, p.begin(), "it had gone when the pass had ended")
}
