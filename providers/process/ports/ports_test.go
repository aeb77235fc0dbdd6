package ports

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// free is the first of some ports in a row on which nobody listens.
func free(t *testing.T, n int) int {
	t.Helper()
	for first := 21000 + os.Getpid()%9000; first < 31000; first += n { // below those that the system chooses for others
		var held []net.Listener
		for port := first; port < first+n; port++ {
			if l, err := net.Listen("tcp4", fmt.Sprint(":", port)); err == nil {
				held = append(held, l)
			}
		}
		for _, l := range held {
			require.NoError(t, l.Close())
		}
		if len(held) == n {
			return first
		}
	}
	require.FailNow(t, "there are none")
	return 0
}

func TestAPortIsGivenOnce(t *testing.T) {
	t.Parallel()
	first := free(t, 3)
	g := &Given{First: first, Last: first + 2}
	g.Put(fmt.Sprint("127.0.0.1:", first), "adopted")
	taken, err := g.Take("one")
	require.NoError(t, err)
	require.Equal(t, first+1, taken)
	require.True(t, g.Has(taken))
	next, err := g.Take("one")
	require.NoError(t, err)
	require.Equal(t, first+2, next, "the next process of a program does not have to wait for the port of the one before")
	require.False(t, g.Has(taken))

	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", taken))
	require.NoError(t, err)
	_, err = g.Take("two")
	require.Error(t, err, "all are given, or somebody listens")
	require.NoError(t, l.Close())
	g.Drop("adopted")
	taken, err = g.Take("two")
	require.NoError(t, err)
	require.Contains(t, []int{first, first + 1}, taken)
}

func TestTheSystemChoosesWhereThereIsNoRange(t *testing.T) {
	t.Parallel()
	g, seen := new(Given), map[int]bool{}
	for i := range 200 {
		port, err := g.Take(i)
		require.NoError(t, err)
		require.False(t, seen[port])
		seen[port] = true
	}
}
