package ownfile

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The mode of a directory does not keep its owner from removing it.
func TestRemoveAllRemovesWhatItsOwnerMayNotWrite(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "own-*") // another user does not get into those of the test
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777))
	path := filepath.Join(dir, "home")
	inner := filepath.Join(path, "a", "b")
	ended := make(chan error, 1)
	go func() {
		if os.Getuid() == 0 { // who may everything; the thread ends with this, because it is not unlocked
			runtime.LockOSThread()
			if _, err := unix.SetfsuidRetUid(65534); err != nil {
				ended <- err
				return
			}
		}
		ended <- func() error {
			if err := os.MkdirAll(inner, 0o700); err != nil {
				return err
			}
			for _, d := range []string{inner, filepath.Dir(inner)} {
				if err := os.Chmod(d, 0o500); err != nil {
					return err
				}
			}
			return RemoveAll(path)
		}()
	}()
	require.NoError(t, <-ended)
	require.NoDirExists(t, path)
}
