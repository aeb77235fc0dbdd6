package overlay

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// On a fresh machine the directory of the programs is not there yet; what a build that was broken off has left is not taken for the library.
func TestTheLibraryIsCopiedWhole(t *testing.T) {
	t.Parallel()
	module, err := filepath.Abs("../../..")
	require.NoError(t, err)
	b := Build{Module: module, Dir: filepath.Join(t.TempDir(), "not", "there")}
	for range 2 {
		mod, lib, err := b.library()
		require.NoError(t, err)
		require.FileExists(t, mod)
		require.FileExists(t, filepath.Join(lib, "nats.go"))
		left, err := filepath.Glob(filepath.Join(b.Dir, "copying-*"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}
