package overlay

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// On a fresh machine the directory of the programs is not there yet; what a copy that was broken off has left is not taken for the library. The patches of the library apply to the version in use.
func TestTheLibraryIsCopiedWhole(t *testing.T) {
	t.Parallel()
	module, err := filepath.Abs("../../..")
	require.NoError(t, err)
	b := Build{Module: module, Dir: filepath.Join(t.TempDir(), "not", "there")}
	require.NoError(t, os.MkdirAll(filepath.Join(b.Dir, "copying-1", "half"), 0o755))
	for range 2 {
		mod, lib, err := b.library()
		require.NoError(t, err)
		require.FileExists(t, mod)
		require.FileExists(t, filepath.Join(lib, "nats.go"))
		left, err := filepath.Glob(filepath.Join(b.Dir, "copying-*"))
		require.NoError(t, err)
		require.Len(t, left, 1)
		root, err := GoRoot()
		require.NoError(t, err)
		_, err = Write(t.TempDir(), module, root, b.ordered(lib)...)
		require.NoError(t, err)
	}
}
