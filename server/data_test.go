package server

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNodeNameAndNonce(t *testing.T) {
	// Not parallel: a process that another test forks holds the lock until it runs its program.
	dir := t.TempDir()
	first, err := claimData(dir, "node-1")
	require.NoError(t, err)
	require.Equal(t, "node-1", first.node)
	require.Empty(t, first.before)
	require.NotEmpty(t, first.nonce)
	_, err = claimData(dir, "node-1")
	require.ErrorContains(t, err, "another instar uses the data directory")
	require.NoError(t, first.close())

	second, err := claimData(dir, "")
	require.NoError(t, err)
	require.Equal(t, "node-1", second.node)
	require.Equal(t, []string{first.nonce}, second.before, "it knows who was before it")
	require.NoError(t, second.close())
	next, err := claimData(dir, "")
	require.NoError(t, err)
	require.Equal(t, []string{second.nonce, first.nonce}, next.before, "the second may have been killed before it entered")
	require.NoError(t, next.close())
	for range 2 * remembered {
		more, err := claimData(dir, "")
		require.NoError(t, err)
		require.LessOrEqual(t, len(more.before), remembered)
		require.NoError(t, more.close())
	}
	_, err = claimData(dir, "node-2")
	require.ErrorContains(t, err, `is that of node "node-1", and --node says "node-2"`)

	copied := t.TempDir()
	for _, name := range []string{"node", "nonce"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(copied, name), raw, 0o600))
	}
	third, err := claimData(copied, "")
	require.NoError(t, err)
	require.Equal(t, "node-1", third.node)
	require.Empty(t, third.before, "in a copy the process before it may live")
	require.NoError(t, third.close())
}
