package ports

import (
	"fmt"
	"net"
	"os"
	"syscall"
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

// Not in parallel with each other: what one of them finds free, the other would listen on.
func TestAPortIsGivenOnce(t *testing.T) {
	first := free(t, 3)
	g := &Given{First: first, Last: first + 2}
	g.Put(fmt.Sprint("127.0.0.1:", first), "adopted")
	taken, err := g.Take("one")
	require.NoError(t, err)
	require.Equal(t, first+1, taken)
	next, err := g.Take("one")
	require.NoError(t, err)
	require.Equal(t, first+2, next, "the next process of a program does not have to wait for the port of the one before")

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

// Who listens by itself is one of those that ports are given to, also while it does not.
func TestAPortThatIsListenedOnIsNotGiven(t *testing.T) {
	first := free(t, 2)
	g := &Given{First: first, Last: first + 1}
	given, err := g.Take("a program") // which does not listen yet
	require.NoError(t, err)
	require.Equal(t, first, given)
	at, tries := 0, 0
	listen := func(port int) (int, error) {
		at, tries = port, tries+1
		return port, nil
	}
	require.NoError(t, g.Listen(0, "a service", listen))
	require.Equal(t, first+1, at)
	require.NoError(t, g.Listen(at, "a service", listen), "again")
	require.ErrorIs(t, g.Listen(given, "a service", listen), syscall.EADDRINUSE)
	require.ErrorIs(t, g.Listen(0, "another", listen), syscall.EADDRINUSE)
	require.Equal(t, 2, tries, "nobody tries what is given")
	_, err = g.Take("another")
	require.Error(t, err, "though nobody listens")
	system := &Given{}
	system.Put(fmt.Sprint(":", given), "a program")
	require.ErrorIs(t, system.Listen(0, "a service", func(int) (int, error) { return given, nil }), syscall.EADDRINUSE)
	g.Drop("a service")
	given, err = g.Take("another")
	require.NoError(t, err)
	require.Equal(t, at, given)
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
